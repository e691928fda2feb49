"""Rewards that raise or give no number: left out of training and counted, until there are too many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.running import Command, write_job

from agentfly.rollout.storage import read_jsonl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Of the four rollouts of each task the first has a reward that raises, the second one that is no number.
AGENT = """
import agentfly as af


@af.reward
def flawed(final_response: str, ctx: af.Context) -> float:
    if ctx.rollout_id.endswith(".0"):
        raise KeyError("no such table")
    if ctx.rollout_id.endswith(".1"):
        return float("nan")
    return len(final_response) % 8 / 8


agent = af.Agent(tools=[], reward=flawed, prompt="count to {n}")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_job(tmp_path, AGENT)
    return tmp_path


def test_a_few_are_left_out_and_counted(folder: Path) -> None:
    run = Command(folder, "train", "job.yaml", "steps=2", "rollout.max_failed_fraction=0.5")
    assert run.wait() == 0, run.told
    logged = [json.loads(line) for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [(metrics["rollouts"], metrics["failed"]) for metrics in logged] == [(8, 4), (8, 4)]
    assert all(metrics["loss"] == metrics["loss"] for metrics in logged)
    ends = list(read_jsonl(folder / "out" / "trajectories.jsonl"))
    assert len(ends) == 16
    for end in ends:
        if end.index == 0:
            assert end.reward is None
            assert end.error is not None
            assert "no such table" in end.error
        elif end.index == 1:
            assert end.reward is None
            assert end.error is not None
            assert "nan" in end.error
        else:
            assert end.reward is not None
            assert end.error is None


def test_too_many_end_the_job_with_one_line_that_says_why(folder: Path) -> None:
    run = Command(folder, "train", "job.yaml", "steps=2")
    assert run.wait() == 1, run.told
    (line,) = (line for line in run.told.splitlines() if line.startswith("agentfly:"))
    assert "4 of 8 rollouts after step 0 can't be learned from (allowed: 10%)" in line
    assert "RewardError: reward 'flawed'" in line or "flawed" in line
    assert "Traceback" not in run.told
    assert run.left(2) == {}
