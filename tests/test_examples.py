"""Every example runs as its folder says: from a copy, the model made, a step trained, tasks rolled out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentfly.rollout.storage import read_jsonl

EXAMPLES = sorted(job.parent for job in (Path(__file__).parent.parent / "examples").glob("*/job.yaml"))
BIN = str(Path(sys.executable).parent)


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PATH": os.pathsep.join([BIN, os.environ["PATH"]])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)  # two jobs after each other, on a machine that may be busy
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("model", "runs"))
    if (folder / "make_model.py").exists():
        run(folder, "python", "make_model.py")
    told = run(folder, "agentfly", "train", "job.yaml", "steps=1", "output=out")
    assert "done after 1 steps" in told
    assert list((folder / "out" / "checkpoints").iterdir())
    told = run(folder, "agentfly", "rollout", "job.yaml", "output=out", "--limit", "4")
    assert "4 rollouts" in told
    trajectories = list(read_jsonl(folder / "out" / "rollouts.jsonl"))
    assert len(trajectories) == 4
    assert all(trajectory.error is None for trajectory in trajectories)


def test_there_are_examples() -> None:
    assert EXAMPLES
