"""The agent of these tests: it looks something up in a pooled resource, then says a digit; high digits pay."""

from __future__ import annotations

import os
from pathlib import Path

import agentfly as af


class Shelf(af.Resource):
    """Writes down what is done with it.

    Args:
        diary: file that gets a line for everything.
        suicide: exit the process in this lease (counted over all hosts by the diary), as a machine that fails would.
    """

    def __init__(self, diary: str, suicide: int = 0) -> None:
        self._diary = Path(diary)
        self._suicide = suicide

    def _note(self, what: str) -> None:
        with self._diary.open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    async def start(self) -> None:
        self._note("start")

    async def reset(self) -> None:
        self._note("reset")

    async def stop(self) -> None:
        self._note("stop")

    async def look(self) -> str:
        self._note("look")
        if self._suicide and self._diary.read_text().count("look") == self._suicide:
            self._note("die")
            os._exit(1)
        return "a digit"


SHELF = af.ResourceSpec(
    Shelf,
    args={"diary": os.environ.get("DIARY", "/dev/null"), "suicide": int(os.environ.get("SUICIDE", 0))},
    name="shelf",
    slots=4,
    max_size=8,
)


@af.tool(claims=[SHELF])
async def look(ctx: af.Context) -> str:
    """Look at the shelf."""
    shelf = await ctx.acquire(SHELF)
    return await shelf.look()


@af.reward
def high(final_response: str) -> af.RewardResult:
    """The digit's worth."""
    digit = final_response.strip()
    return af.RewardResult(int(digit) / 9 if digit.isdigit() and len(digit) == 1 else 0.0, {"acc": float(digit == "9")})


agent = af.Agent(tools=[look], reward=high, max_turns=3, max_tokens=32)


@af.reward
def moody(final_response: str, bad: list[int], ctx: af.Context) -> float:
    """Fails for the rollouts of a group that the task names."""
    if int(ctx.rollout_id.rpartition(".")[2]) in bad:
        raise ValueError("in a bad mood")
    return float(final_response)


moody_agent = af.Agent(reward=moody)
unrewarded_agent = af.Agent()
