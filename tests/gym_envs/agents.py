"""Small agents for the tests of the Gymnasium side."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from agentfly.agent import Agent, reward, tool
from agentfly.context import Context, FromTask
from agentfly.resources import Resource, ResourceSpec

Digit = Annotated[int, Field(ge=0, le=9)]


@tool
def add(left: Digit, right: Digit) -> str:
    """Add two digits.

    Args:
        left: the one.
        right: the other.
    """
    return str(left + right)


@tool(terminal=True)
def finish(how: Literal["well", "badly"], sure: bool) -> str:
    """Finish.

    Args:
        how: it went.
        sure: about that.
    """
    return f"{how}{'' if sure else '?'}"


@reward
def well(trajectory: Any) -> float:
    """1 for one who finished well and is sure."""
    return float(trajectory.messages[-1]["content"] == "well")


TASKS = [{"prompt": f"Aufgabe {number}: schön!"} for number in range(5)]
FINISHER = Agent(tools=[add, finish], reward=well, max_turns=4, max_invalid_calls=2)


class Tally(Resource):
    """Counts, from where the task says; a leak would show."""

    def __init__(self) -> None:
        self.count = 0

    async def setup(self, start: int) -> None:
        self.count += start

    def up(self, by: int) -> int:
        self.count += by
        return self.count

    async def reset(self) -> None:
        self.count = 0


TALLY = ResourceSpec(Tally, slots=512, max_size=4096)


@tool(claims=[TALLY])
async def up(by: Digit, ctx: Context, start: Annotated[int, FromTask]) -> str:
    """Count up.

    Args:
        by: how many.
    """
    tally = await ctx.acquire(TALLY, setup={"start": start})
    return str(await tally.up(by))


@reward
async def tallied(ctx: Context, start: int) -> float:
    """What was counted."""
    tally = await ctx.acquire(TALLY, setup={"start": start})
    return float(await tally.up(0))


COUNTER = Agent(tools=[up], reward=tallied, max_turns=2)
COUNTER_TASKS = [{"prompt": f"count from {start}", "start": start} for start in (10, 20)]


COLOURS = ("red", "green", "blue")


@tool(terminal=True)
def pick(colour: Literal["red", "green", "blue"]) -> str:
    """Pick a colour.

    Args:
        colour: one of them.
    """
    return colour


@reward
def asked_for(trajectory: Any, colour: str) -> float:
    """1 for the colour that the prompt names."""
    return float(trajectory.messages[-1]["content"] == colour)


PICKER = Agent(tools=[pick], reward=asked_for, max_turns=1)
PICKER_TASKS = [{"prompt": f"Pick {colour}.", "colour": colour} for colour in COLOURS]


def call(name: str, **arguments: Any) -> str:
    """A call as text."""
    import json

    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
