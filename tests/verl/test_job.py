"""A training job whose backend is verl: the same file that the native backend runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from assets import write_tasks
from running import cpu_environment, read_lines

from agentfly.errors import ConfigError
from agentfly.training.backend import find_backend
from agentfly.training.loading import load_job

CPU = {
    "actor_rollout_ref": {
        "model": {
            "use_remove_padding": False,
            "enable_gradient_checkpointing": False,
            "override_config": {"attn_implementation": "sdpa"},
        },
        "actor": {
            "strategy": "fsdp2",
            "fsdp_config": {
                "strategy": "fsdp2",
                "use_torch_compile": False,
                "mixed_precision": {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
            },
        },
        "rollout": {"name": "hf_cpu"},
    },
    "trainer.device": "cpu",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    "ray_kwargs.ray_init": {
        "num_cpus": 16,
        "num_gpus": 1,
        "address": "local",
        "include_dashboard": False,
        "object_store_memory": 400000000,
    },
}


def job_file(folder: Path, place: Path, /, **changes: Any) -> Path:
    write_tasks(folder / "tasks.jsonl", 16)
    write_tasks(folder / "held_out.jsonl", 4)
    job = {
        "agent": "agents:agent",
        "tasks": "tasks.jsonl",
        "eval_tasks": "held_out.jsonl",
        "model": {"path": str(place), "family": "qwen3"},
        "rollout": {"group_size": 4, "tasks_per_step": 4, "max_tokens": 32, "concurrency": 8},
        "optimizer": {"lr": 1e-3},
        "steps": 2,
        "output": "out",
        "verl": CPU,
        **changes,
    }
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    return file


def train(folder: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "agentfly.cli.main", "train", *arguments],
        cwd=folder,
        env=cpu_environment(DIARY=str(folder / "diary")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    (folder / "log").write_text(done.stdout)
    assert done.returncode == code, done.stdout[-6000:]
    return done.stdout


@pytest.mark.slow
def test_one_job_file_for_both_backends(model: Path, tmp_path: Path) -> None:
    file = str(job_file(tmp_path, model))
    train(tmp_path, file, "backend=native", "output=native")
    train(tmp_path, file, "backend=verl", "output=verl")
    native, verl = (read_lines(tmp_path / name / "metrics.jsonl") for name in ("native", "verl"))
    assert [line["step"] for line in verl] == [line["step"] for line in native] == [0, 1, 2, 2]
    for ours, theirs in zip(native, verl, strict=True):
        assert set(ours) - set(theirs) <= {"logprob_gap", "skipped_steps"}  # verl tells of neither
    assert all(0 < line["reward"] < 1 and line["verl/training/rollout_probs_diff_max"] < 1e-4 for line in verl[1:3])
    trajectories = read_lines(tmp_path / "verl" / "trajectories.jsonl")
    assert len(trajectories) == 2 * 4 * 4
    assert {one["task"]["id"] for one in trajectories} <= {str(index) for index in range(16)}
    checkpoint = tmp_path / "verl" / "checkpoints" / "global_step_2" / "actor" / "huggingface"
    assert list(checkpoint.glob("*.safetensors")) and (checkpoint / "tokenizer.json").is_file()
    nothing_is_left(tmp_path)
    assert "has checkpoints of an earlier run" in train(tmp_path, file, "backend=verl", "output=verl", code=2)
    train(tmp_path, file, "backend=verl", "output=verl", "steps=3", "--resume")
    assert [line["step"] for line in read_lines(tmp_path / "verl" / "metrics.jsonl")] == [0, 1, 2, 2, 3, 3]
    assert len(read_lines(tmp_path / "verl" / "trajectories.jsonl")) == 3 * 4 * 4


def nothing_is_left(folder: Path) -> None:
    """No host of a pool is alive."""
    hosts = {int(line.split()[1]) for line in (folder / "diary").read_text().splitlines()}
    assert hosts
    deadline = time.monotonic() + 60
    while [pid for pid in hosts if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.slow
def test_a_job_that_is_stopped_leaves_nothing(model: Path, tmp_path: Path) -> None:
    file = job_file(tmp_path, model, backend="verl", steps=1000, eval_tasks=None)
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentfly.cli.main", "train", str(file)],
            cwd=tmp_path,
            env=cpu_environment(DIARY=str(tmp_path / "diary")),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        while "step 1/1000" not in (tmp_path / "log").read_text():
            assert process.poll() is None, (tmp_path / "log").read_text()[-6000:]
            time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    assert "stopped; go on with --resume" in (tmp_path / "log").read_text()
    nothing_is_left(tmp_path)


@pytest.mark.slow
def test_too_many_failed_rollouts_end_a_job_with_their_reason(model: Path, tmp_path: Path) -> None:
    (tmp_path / "sour.py").write_text(
        "import agentfly as af\n\n@af.reward\ndef sour(final_response: str) -> float:\n"
        "    raise ValueError('in a bad mood')\n\nagent = af.Agent(reward=sour, max_tokens=8)\n"
    )
    file = job_file(tmp_path, model, backend="verl", agent="sour.py:agent", eval_tasks=None)
    assert "in a bad mood" in train(tmp_path, str(file), code=1).splitlines()[-1]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": {"engine": "scripted"}}, "model.engine"),
        ({"model": {"options": {"max_context": 100}}}, "model.options"),
        ({"rollout": {"min_p": 0.1}}, "rollout.min_p"),
        ({"rollout": {"stop": ["."]}}, "rollout.stop"),
        ({"rollout": {"num_cpus": 1}}, "rollout.num_cpus"),
        ({"rollout": {"temperature": 0}}, "rollout.temperature"),
        ({"algorithm": {"advantage": "reinforce"}}, "algorithm.advantage"),
        ({"algorithm": {"ratio": "sequence", "dual_clip": 3.0}}, "algorithm.dual_clip"),
        ({"algorithm": {"minibatches": 3}}, "algorithm.minibatches"),
        ({"optimizer": {"schedule": "linear"}}, "optimizer.schedule"),
    ],
)
def test_what_verl_can_not_honour_is_refused_by_name(
    model: Path, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    if "model" in changes:
        changes["model"] = {"path": str(model), **changes["model"]}
    job = load_job(job_file(tmp_path, model, backend="verl", **changes))
    with pytest.raises(ConfigError, match=f"^{named}: "):
        find_backend("verl").validate(job)
