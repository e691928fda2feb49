"""A run leaves nothing behind, whether it comes to its end or fails on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.running import JOB, Command, write_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Every reward works in a sandbox, and leaves something running there; from some step on it raises.
AGENT = """
import agentfly as af

SANDBOX = af.SandboxSpec(slots=2, max_size=4)


@af.reward
async def length(final_response: str, ctx: af.Context) -> float:
    box = await ctx.acquire(SANDBOX)
    await box.run("sleep 600 & echo x > file")
    if int(ctx.group_id.split("-")[0]) >= RAISES:
        raise OSError("the judge has gone home")
    return len(final_response) % 8 / 8


agent = af.Agent(tools=[], reward=length, prompt="count to {n}")
"""


@pytest.mark.parametrize(("raises", "code"), [(99, 0), (1, 1)], ids=["finish", "exception"])
def test_nothing_is_left_however_a_run_ends(tmp_path: Path, raises: int, code: int) -> None:
    write_job(tmp_path, AGENT.replace("RAISES", str(raises)), JOB.replace("steps: 4", "steps: 2"))
    run = Command(tmp_path, "train", "job.yaml")
    assert run.wait() == code, run.told
    if code:
        assert "the judge has gone home" in run.told
    assert run.left(2) == {}
    assert run.places_left() == []
