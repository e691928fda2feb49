"""The command line: what is wrong costs nothing but a line, what is right leaves its results."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rollout.tiny_tokenizer import build_folder

from agentfly.cli.main import main
from agentfly.rollout.storage import read_jsonl, read_parquet

AGENT = '''
import agentfly as af


@af.tool
def double(n: int) -> int:
    """Double it.

    Args:
        n: a number.
    """
    return 2 * n


@af.reward
def exact(final_response: str, answer: str) -> float:
    return float(final_response == answer)


agent = af.Agent(tools=[double], reward=exact, prompt="double {n}")


@af.reward
def broken(final_response: str) -> float:
    raise RuntimeError("the judge is out")


unjust = af.Agent(tools=[double], reward=broken, prompt="double {n}")
pointless = af.Agent(tools=[double], prompt="double {n}")
'''
SCRIPT = """
def play(prompt, turn, seed):
    if turn == 0:
        n = prompt.rsplit("double ", 1)[1].split("<")[0]
        return '<tool_call>\\n{"name": "double", "arguments": {"n": ' + n + '}}\\n</tool_call>'
    return prompt.rsplit("<tool_response>\\n", 1)[1].split("\\n", 1)[0]
"""
JOB = """
agent: agent.py:agent
tasks: tasks.jsonl
model:
  engine: scripted
  path: model
  family: qwen3
  options: {script: "played:play"}
output: out
"""
TRAINABLE = ["model.engine=transformers", "model.options={}"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "played.py").write_text(SCRIPT)
    (tmp_path / "job.yaml").write_text(JOB)
    rows = [{"n": n, "answer": str(2 * n)} for n in range(5)] + [{"n": 9, "answer": "99"}]
    (tmp_path / "tasks.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    build_folder(tmp_path / "model")
    return tmp_path


def agentfly(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # The driver's folder isn't on the workers' path, so the script's folder is put there.
    env = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200", **environment}
    command = [sys.executable, "-m", "agentfly.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False)


def test_rollout_writes_trajectories_and_sums_up(folder: Path) -> None:
    done = agentfly(folder, "rollout", "job.yaml", "--samples", "2", "--parquet")
    assert done.returncode == 0, done.stderr
    assert "0.8333" in done.stdout
    trajectories = list(read_jsonl(folder / "out" / "rollouts.jsonl"))
    assert len(trajectories) == 12
    columns = list(read_parquet(folder / "out" / "rollouts.parquet"))
    assert [trajectory.messages for trajectory in columns] == [trajectory.messages for trajectory in trajectories]
    assert {trajectory.finish_reason for trajectory in trajectories} == {"stop"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "none.yaml"], "none.yaml: No such file"),
        (["train", "job.yaml", "stepz=3"], "stepz: unknown key; did you mean steps?"),
        (["train", "job.yaml", "tasks=none.jsonl"], "none.jsonl: no such file"),
        (["train", "job.yaml", "agent=agent.py:agnt"], "agnt"),
        (["train", "job.yaml", "agent=agent.py:pointless"], "it has no reward"),
        (["train", "job.yaml", "backend=magic"], "backend: 'magic' is not installed; there is:"),
        (["train", "job.yaml", "model.engine=magic"], "magic"),
        (["train", "job.yaml", "model.engine=openai", "model.options={}"], "openai"),
        (["train", "job.yaml", *TRAINABLE, "output=tasks.jsonl/x"], "output: can't write to "),
        (["train", "job.yaml", *TRAINABLE, "rollout.top_p=0.9"], "rollout.top_p: it must be 1.0"),
        (["train", "job.yaml", *TRAINABLE, "model.path=nowhere"], "model.path: no folder "),
        (["rollout", "job.yaml", "model.engine=magic"], "magic"),
        (["rollout", "job.yaml", "model.path=nowhere"], "no model folder at "),
        (["rollout", "job.yaml", "output=tasks.jsonl/x"], "output: can't write to "),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_starts(
    folder: Path,
    arguments: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["agentfly", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2, said.err
    assert told in said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ""
    assert not (folder / "out").exists()


def test_a_cluster_that_does_not_answer_is_told_at_once(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and doesn't listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = agentfly(folder, "rollout", "job.yaml", RAY_ADDRESS=address)
    assert done.returncode == 2
    assert f"RAY_ADDRESS: no Ray cluster answers at {address}" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_evaluation_whose_rollouts_fail_fails(folder: Path) -> None:
    done = agentfly(folder, "rollout", "job.yaml", "agent=agent.py:unjust")
    assert done.returncode == 1
    assert "agentfly: 6 of 6 rollouts failed (allowed: 10%)" in done.stderr
    assert "the judge is out" in done.stdout
    assert len(list(read_jsonl(folder / "out" / "rollouts.jsonl"))) == 6


def test_a_row_without_a_field_that_the_reward_asks_for(folder: Path) -> None:
    with (folder / "tasks.jsonl").open("a") as file:
        file.write('\n{"n": 1}\n')
    done = agentfly(folder, "rollout", "job.yaml")
    assert done.returncode == 2
    assert "row 7" in done.stderr
    assert "answer" in done.stderr


def test_doctor_says_what_there_is(folder: Path) -> None:
    done = agentfly(folder, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("Python", "ray", "extra native", "sandbox (bubblewrap)"):
        assert part in done.stdout
