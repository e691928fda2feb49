"""What a model may send, and what it is told when it sends something else."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from agent.contexts import context
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel

import agentfly.agent as af
from agentfly.context import Context, FromTask


class Piece(enum.Enum):
    PAWN = "pawn"
    KING = "king"


@dataclass
class Square:
    file: str
    rank: int


class Plan(BaseModel):
    steps: list[str]
    depth: int = 1


def explode(value: int) -> int:
    raise LookupError(f"no {value}")


@af.tool
def play(
    piece: Piece,
    count: int,
    square: Square | None = None,
    plan: Plan | None = None,
    mode: Literal["fast", "slow"] = "fast",
    tags: list[int] = [],  # noqa: B006  a user's habit, that must work
    weights: dict[str, float] | None = None,
) -> Any:
    """Play."""
    return {
        "piece": piece.name,
        "count": count,
        "square": square,
        "plan": plan,
        "mode": mode,
        "tags": tags,
        "weights": weights,
    }


@af.tool
def secretive(text: str, ctx: Context, answer: Annotated[str, FromTask] = "") -> str:
    """Keep a secret."""
    return text + answer


async def sent(tool: af.Tool, arguments: Any) -> af.ToolResult:
    return await tool.call(arguments, context(answer="theirs"))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"piece": "king", "count": "3"}, '"count": 3'),
        ({"piece": "king", "count": 3.0}, '"count": 3'),
        ('{"piece": "pawn", "count": 1}', '"piece": "PAWN"'),
        ({"piece": "king", "count": 1, "tags": "[1, 2]"}, '"tags": [1, 2]'),
        ({"piece": "king", "count": 1, "tags": ["1"]}, '"tags": [1]'),
        ({"piece": "king", "count": 1, "square": {"file": "e", "rank": "4"}}, '"square": {"file": "e", "rank": 4}'),
        ({"piece": "king", "count": 1, "square": '{"file": "e", "rank": 4}'}, '"square": {"file": "e", "rank": 4}'),
        ({"piece": "king", "count": 1, "plan": {"steps": ["a"]}}, '"plan": {"steps": ["a"], "depth": 1}'),
        ({"piece": "king", "count": 1, "weights": '{"a": "0.5"}'}, '"weights": {"a": 0.5}'),
        ({"piece": "king", "count": 1, "square": "null"}, '"square": null'),
    ],
)
async def test_what_is_meant_is_taken(arguments: Any, shown: str) -> None:
    result = await sent(play, arguments)
    assert not result.is_error, result.content
    assert shown in result.content


async def test_a_number_for_a_text_is_its_text() -> None:
    assert (await sent(secretive, {"text": 12})).content == "12theirs"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"piece": "king"}, ["count: missing"]),
        ({"piece": "king", "count": "many"}, ["count: Input should be a valid integer", "'many'"]),
        ({"piece": "rook", "count": 1}, ["piece: Input should be 'pawn' or 'king'", "'rook'"]),
        ({"piece": "king", "count": 1, "mode": "odd"}, ["mode: Input should be 'fast' or 'slow'"]),
        ({"piece": "king", "count": 1, "square": {"file": "e"}}, ["square.rank: missing"]),
        ({"piece": "king", "count": 1, "tags": ["x"]}, ["tags.0: Input should be a valid integer"]),
        ({"piece": "king", "count": 1, "cuont": 2}, ["cuont: unknown argument", "there are only: piece, count"]),
        ({"count": "x", "mode": 1}, ["piece: missing", "count: ", "mode: "]),
        ("[1]", ["one JSON object", "[1]"]),
        ('{"piece": "king", ', ["not valid JSON"]),
        (7, ["one JSON object", "7"]),
        ("", ["piece: missing", "count: missing"]),
        ("[" * 100_000, ["not valid JSON"]),
    ],
)
async def test_what_is_wrong_is_told_with_what_is_expected(arguments: Any, told: list[str]) -> None:
    result = await sent(play, arguments)
    assert result.is_error
    for words in told:
        assert words in result.content
    assert "Wrong arguments for tool 'play'" in result.content
    assert 'piece ("pawn" | "king", required); count (integer, required)' in result.content
    assert 'mode ("fast" | "slow", optional)' in result.content


@pytest.mark.parametrize("name", ["ctx", "answer", "self", "argument_0"])
async def test_what_the_rollout_fills_cannot_be_sent(name: str) -> None:
    result = await sent(secretive, {"text": "a", name: "mine"})
    assert result.is_error
    assert f"{name}: unknown argument; there are only: text" in result.content
    assert "mine" not in result.content
    assert "theirs" not in result.content


async def test_a_tool_without_arguments_takes_none_in_any_form() -> None:
    @af.tool
    def ping() -> str:
        """Ping."""
        return "pong"

    nothings: list[Any] = [{}, "", " ", "{}", None]
    for nothing in nothings:
        assert (await sent(ping, nothing)).content == "pong"
    assert "takes none" in (await sent(ping, {"x": 1})).content


async def test_defaults_are_the_functions_own() -> None:
    sentinel = object()

    @af.tool
    def default(x: Any = sentinel) -> str:
        """Tell whether it is the default."""
        return str(x is sentinel)

    assert (await sent(default, {})).content == "True"


async def test_a_validator_of_the_users_that_breaks_is_an_observation() -> None:
    @af.tool
    def fragile(value: Annotated[int, AfterValidator(explode)]) -> int:
        """Break."""
        return value

    result = await sent(fragile, {"value": 1})
    assert result.is_error
    assert "LookupError" in result.content


async def test_a_large_wrong_argument_is_told_in_short() -> None:
    result = await sent(play, {"piece": "x" * 10_000_000, "count": 1, **{f"extra{n}": n for n in range(50)}})
    assert result.is_error
    assert len(result.content) < 3000
    assert "and 41 more" in result.content


rubbish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["piece", "count", "square", "plan", "mode", "tags", "weights", "ctx"]) | st.text()


@settings(max_examples=150, deadline=None)
@given(rubbish | st.dictionaries(names | st.integers(), rubbish, max_size=6))
async def test_rubbish_never_raises(arguments: Any) -> None:
    result = await sent(play, arguments)
    result.content.encode()
    if not isinstance(arguments, dict) or "piece" not in arguments:
        assert result.is_error


@settings(max_examples=100, deadline=None)
@given(st.integers(-(10**9), 10**9), st.sampled_from(["king", "pawn"]), st.lists(st.integers(-99, 99), max_size=5))
async def test_an_argument_in_quotes_is_the_same(count: int, piece: str, tags: list[int]) -> None:
    plain = await sent(play, {"piece": piece, "count": count, "tags": tags})
    quoted = await sent(play, {"piece": piece, "count": str(count), "tags": str(tags)})
    assert plain == quoted
    assert not plain.is_error


async def test_numbers_that_json_lacks_reach_a_float() -> None:
    @af.tool
    def finite(x: float) -> bool:
        """Tell."""
        return math.isfinite(x)

    assert (await sent(finite, '{"x": NaN}')).content == "false"
