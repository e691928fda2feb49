"""`agentfly plan` on a job file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rollout.tiny_tokenizer import build_folder
from typer.testing import CliRunner

from agentfly.cli.main import app
from agentfly.errors import AgentFlyError, ConfigError
from agentfly.resources.core.types import Lease, LeaseEnded
from agentfly.resources.event_log import EventLog

AGENT = """
import agentfly as af

BOX = af.SandboxSpec(name="box", slots=4, max_size=4)


@af.tool(claims=[BOX])
async def python(code: str) -> str:
    '''Run code.

    Args:
        code: what to run.
    '''
    return code


@af.reward
def length(final_response: str) -> float:
    return 1.0


agent = af.Agent(tools=[python], reward=length, prompt="count to {n}")
"""
JOB = """
agent: agent.py:agent
tasks: tasks.jsonl
model: {path: model, family: qwen3, max_concurrency: 64}
rollout: {group_size: 4, tasks_per_step: 8, concurrency: 32}
"""
TIMES = """
rollout: {turns: 2, generating: {mean: 2}, between_steps: 10}
pools: {box: {calls: 1, call: 3, start: 1, reset: 0.5, price: 0.1}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"agent.py": AGENT, "job.yaml": JOB, "times.yaml": TIMES, "tasks.jsonl": '{"n": 1}\n'}.items():
        (tmp_path / name).write_text(text)
    build_folder(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def plan(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["plan", "job.yaml", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_it_says_what_holds_the_job_up_and_what_it_needs(folder: Path) -> None:
    told = plan("--times", "times.yaml", "--continuous", "--target", "5", "--price", "model-transformers=2")
    assert "box holds it up" in told
    assert "5 rollouts/s" in told
    assert "box: 4 -> " in told
    assert "Cost of 1000 rollouts" in told


def test_json_has_the_same(folder: Path) -> None:
    record = json.loads(plan("--times", "times.yaml", "--json", "--rollouts", "64", "rollout.concurrency=16"))
    assert record["rollouts"] == 64
    assert record["concurrent"] == 16
    assert record["hold_up"]["pool"] == "box"
    assert record["pools"]["box"]["slots"] == 4
    assert record["pools"]["box"]["cost"] == pytest.approx(record["pools"]["box"]["slot_hours"] * 0.1)
    assert "target" not in record


def test_the_log_of_the_jobs_own_run_is_learnt_from(folder: Path) -> None:
    log = EventLog(str(folder / "runs" / "job" / "events.jsonl"), clock=lambda: 100.0)
    for pool, held in (("box", 3.0), ("model-transformers", 7.0)):
        log.lease_ended(pool, LeaseEnded(Lease("t", "c", pool, "h", 0, 1), "r", 0.5, held, "released"))
    log.close()
    record = json.loads(plan("--json"))
    assert record["working_seconds"] == pytest.approx(7.0 - 0.5)


def test_steps_that_are_too_small_are_named(folder: Path) -> None:
    assert "Not with any size" in plan("--times", "times.yaml", "--target", "100")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing says how long rollouts take"),
        (["--events", "none.jsonl"], "can't read the event log"),
        (["--times", "times.yaml", "--price", "box"], "write POOL=PRICE"),
        (["--times", "times.yaml", "--price", "tox=1"], "the job has no pool 'tox'"),
        (["--trajectories", "empty.jsonl"], "no rollout in it came to an end"),
    ],
)
def test_what_is_missing_is_one_line(folder: Path, arguments: list[str], told: str) -> None:
    (folder / "empty.jsonl").touch()
    with pytest.raises(ConfigError, match=told):
        plan(*arguments)


def test_pools_that_cannot_serve_are_an_error(folder: Path) -> None:
    (folder / "agent.py").write_text(AGENT.replace("max_size=4", "max_size=4, max_waiting=1"))
    with pytest.raises(AgentFlyError, match="queue of pool 'box' is full"):
        plan("--times", "times.yaml")
