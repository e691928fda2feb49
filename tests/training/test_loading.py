"""Jobs: everything that is wrong is told by its place, before anything starts."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly.errors import ConfigError
from agentfly.training.job import TrainingJob
from agentfly.training.loading import load_job

MINIMAL = "agent: agent.py:agent\ntasks: tasks.jsonl\nmodel: {path: model}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_job(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, MINIMAL + "eval_tasks: /elsewhere/eval.jsonl\noutput: out\n"))
    assert job.agent == f"{tmp_path}/agent.py:agent"
    assert job.tasks == f"{tmp_path}/tasks.jsonl"
    assert job.eval_tasks == "/elsewhere/eval.jsonl"
    assert job.model.path == f"{tmp_path}/model"
    assert job.output == tmp_path / "out"


def test_modules_and_served_models_are_no_paths(tmp_path: Path) -> None:
    text = "agent: my.agents:agent\ntasks: t.json\nmodel: {engine: openai, path: gpt-x}\n"
    job = load_job(write(tmp_path, text))
    assert job.agent == "my.agents:agent"
    assert job.model.path == "gpt-x"


def test_overrides_replace_what_is_inside(tmp_path: Path) -> None:
    overrides = ["optimizer.lr=3e-4", "rollout.timeout=null", "loggers=[jsonl]", "model.options.threads=2", "seed=7"]
    job = load_job(write(tmp_path, MINIMAL), overrides)
    assert job.optimizer.lr == 3e-4
    assert job.rollout.timeout is None
    assert job.loggers == ["jsonl"]
    assert job.model.options == {"threads": 2}
    assert job.seed == 7


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (MINIMAL + "rollout: {grup_size: 4}", ["rollout.grup_size: unknown key; did you mean group_size?"]),
        (MINIMAL + "xyzzy: 1", ["xyzzy: unknown key; the keys here are: agent, tasks"]),
        ("tasks: t.json\nmodel: {path: m}", ["agent: this key is needed"]),
        (MINIMAL + "steps: 0", ["steps: input should be greater than or equal to 1 (got 0)"]),
        (MINIMAL + "steps: many\nrollout: {top_p: 2}", ["rollout.top_p: ", "steps: "]),
        (MINIMAL + "rollout: {group_size: 1}", ["the job: rollout.group_size must be at least 2"]),
        (MINIMAL + "algorithm: {advantage: magic}", ["algorithm.advantage: input should be 'grpo'"]),
        (MINIMAL + "steps: 3\nsteps: 4", [":5: no YAML: the key 'steps' comes twice"]),
        (MINIMAL + "rollout:\n  group_size: 4\n  group_size: 4", [":6: no YAML: the key 'group_size' comes twice"]),
        (MINIMAL.replace("tasks.jsonl", "3"), ["tasks: must be the name of a JSON, JSONL or Parquet file"]),
        (MINIMAL + "eval_tasks: [1, 2]", ["eval_tasks: must be the name of a JSON"]),
        (MINIMAL.replace("agent.py:agent", "{a: 1}"), ["agent: must be 'module:attribute' or 'file.py:attribute'"]),
        (MINIMAL + "seed: \x07", ["no YAML"]),
        (MINIMAL + "seed: 2026-02-31", ["no YAML"]),
        (MINIMAL + "seed: " + "[" * 5000, ["no YAML"]),
        ("- a list", ["a job is a mapping of keys, this is list"]),
        ("a: [", ["no YAML"]),
    ],
)
def test_each_problem_is_one_line_with_its_place(tmp_path: Path, text: str, lines: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_job(path)
    told = str(caught.value).splitlines()
    assert len(told) == len(lines)
    for said, wanted in zip(told, lines, strict=True):
        assert said.startswith(str(path))
        assert wanted in said


@pytest.mark.parametrize("override", ["steps", "=3", "steps.x=1", "steps=[", "steps=2026-02-31", "optimizer.rl=1"])
def test_a_wrong_override_is_told(tmp_path: Path, override: str) -> None:
    path = write(tmp_path, MINIMAL + "steps: 3\n")
    with pytest.raises(ConfigError, match=r"override|optimizer\.rl"):
        load_job(path, [override])


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_job(tmp_path / "nothing.yaml")


@given(st.text())
def test_rubbish_is_a_config_error_or_a_job(text: str) -> None:
    # A lone surrogate can't be written to a file in the first place.
    with tempfile.TemporaryDirectory() as folder, suppress(ConfigError, UnicodeEncodeError):
        assert isinstance(load_job(write(Path(folder), text)), TrainingJob)
