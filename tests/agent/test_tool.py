"""Calling tools: functions, methods and classes, and everything that they can do wrong."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from agent.contexts import context

import agentfly.agent as af
from agentfly.context import Context, FromTask
from agentfly.errors import ConfigError, ModelError, ResourceDied, ToolError


class Board:
    def __init__(self, name: str = "board") -> None:
        self.name = name
        self.moves: list[str] = []

    @af.tool
    async def move(self, uci: str, ctx: Context) -> str:
        """Move."""
        self.moves.append(uci)
        return f"{self.name} {uci} {ctx.rollout_id}"

    @af.tool
    def undo(self) -> str:
        """Undo."""
        return self.moves.pop()

    @af.tool
    @classmethod
    def kind(cls) -> str:
        """Tell the class."""
        return cls.__name__

    @af.tool
    @staticmethod
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b


class Chess(Board):
    pass


@af.tool
class Search:
    """Search an index."""

    def __init__(self, index: dict[str, str], *, upper: bool = False) -> None:
        self.index = index
        self.upper = upper

    async def __call__(self, query: str, ctx: Context) -> str:
        text = self.index[query]
        return text.upper() if self.upper else text


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, by: int = 1) -> int:
        """Count.

        Args:
            by: the step.
        """
        self.count += by
        return self.count


@af.tool(terminal=True)
def submit(answer: Annotated[int, "the answer"]) -> str:
    """Submit."""
    if answer < 0:
        raise ToolError("answers are positive")
    return "thanks"


async def test_methods_are_bound_by_the_instance() -> None:
    one, two = Board("one"), Board("two")
    assert (await one.move.call({"uci": "e4"}, context())).content == "one e4 g.0"
    assert (await two.move.call({"uci": "d4"}, context())).content == "two d4 g.0"
    assert (one.moves, two.moves) == (["e4"], ["d4"])
    assert (await one.undo.call({}, context())).content == "e4"
    assert list(one.move.parameters["properties"]) == ["uci"]


async def test_class_and_static_methods() -> None:
    for holder in (Chess, Chess()):
        assert (await holder.kind.call({}, context())).content == "Chess"
        assert (await holder.add.call({"a": 1, "b": "2"}, context())).content == "3"


async def test_a_method_without_its_instance_is_a_mistake_of_the_users() -> None:
    with pytest.raises(ConfigError, match=r"Board\.move.*instance"):
        await Board.move.call({"uci": "e4"}, context())


async def test_an_instance_of_a_decorated_class_is_a_tool() -> None:
    search = Search({"a": "apple"}, upper=True)
    assert isinstance(search, af.Tool)
    assert (search.name, search.description) == ("Search", "Search an index.")
    assert list(search.parameters["properties"]) == ["query"]
    assert (await search.call({"query": "a"}, context())).content == "APPLE"
    counter = af.tool(Counter)
    first, second = counter(), counter()
    assert first.parameters["properties"]["by"]["description"] == "the step."
    assert [(await first.call({}, context())).content for _ in range(2)] == ["1", "2"]
    assert (await second.call({"by": 5}, context())).content == "5"


async def test_direct_calls_reach_the_function() -> None:
    assert submit(3) == "thanks"
    assert await Board("b").move("e4", context()) == "b e4 g.0"
    assert await Search({"a": "apple"})("a", ctx=context()) == "apple"
    with pytest.raises(ToolError):
        submit(-1)


async def test_a_terminal_tool_ends_the_rollout_only_when_it_succeeds() -> None:
    assert (await submit.call({"answer": 1}, context())).terminal
    refused = await submit.call({"answer": -1}, context())
    assert refused == af.ToolResult("answers are positive", is_error=True)
    assert not (await submit.call({"answer": "x"}, context())).terminal


async def test_a_tool_may_give_the_whole_result() -> None:
    @af.tool
    def grade() -> af.ToolResult:
        """Grade."""
        return af.ToolResult({"ok": 1}, metrics={"grade": 1}, terminal=True)  # type: ignore[arg-type]

    assert await grade.call({}, context()) == af.ToolResult('{"ok": 1}', metrics={"grade": 1.0}, terminal=True)


async def test_fields_of_the_task_are_injected() -> None:
    @af.tool
    def peek(fen: Annotated[str, FromTask], goal: Annotated[str, FromTask("answer")] = "none") -> str:
        """Peek."""
        return f"{fen} {goal}"

    assert (await peek.call({}, context(fen="F", answer="A"))).content == "F A"
    assert (await peek.call({}, context(fen="F"))).content == "F none"
    with pytest.raises(ConfigError, match=r"'peek'.*'fen'.*task-7.*answer"):
        await peek.call({}, context(answer="A"))


async def test_sync_tools_run_in_daemon_threads_side_by_side() -> None:
    barrier = threading.Barrier(3, timeout=10)
    daemons = []

    @af.tool
    def meet() -> str:
        """Meet the others."""
        daemons.append(threading.current_thread().daemon)
        barrier.wait()
        return threading.current_thread().name

    results = await asyncio.gather(*(meet.call({}, context()) for _ in range(3)))
    assert {result.content for result in results} == {"tool meet"}
    assert daemons == [True] * 3


async def test_a_wrapped_coroutine_function_runs_on_the_loop() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return inner

    @af.tool
    @logged
    async def here(x: int) -> bool:
        """Tell whether this is the main thread."""
        return threading.current_thread() is threading.main_thread()

    assert (await here.call({"x": 1}, context())).content == "true"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


RAISED = [
    (ValueError("wires crossed"), "ValueError: wires crossed"),
    (KeyError("k"), "KeyError: 'k'"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (StopIteration(1), "StopIteration"),
    (asyncio.CancelledError(), "CancelledError"),
    (TimeoutError("its own"), "TimeoutError: its own"),
    (GeneratorExit(), "GeneratorExit"),
    (Unspeakable(), "Unspeakable"),
    (ValueError("x" * 1_000_000), "characters cut"),
    (ValueError("lone \ud800"), "lone"),
]


@pytest.mark.parametrize(("error", "told"), RAISED, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("threaded", [True, False])
async def test_whatever_a_tool_raises_is_an_observation(error: BaseException, told: str, threaded: bool) -> None:
    def fail() -> str:
        raise error

    async def afail() -> str:
        raise error

    result = await af.tool(name="fail")(fail if threaded else afail).call({}, context())
    assert result.is_error
    assert "'fail' failed" in result.content
    assert told in result.content
    assert len(result.content) <= 8192
    result.content.encode()


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("error", [ResourceDied("gone"), ModelError("gone")])
@pytest.mark.parametrize("grouped", [True, False])
async def test_faults_of_the_engine_go_through(error: Exception, threaded: bool, grouped: bool) -> None:
    raised = ExceptionGroup("several", [ValueError("x"), error]) if grouped else error

    def fail() -> str:
        raise raised

    async def afail() -> str:
        raise raised

    with pytest.raises(type(error)) as caught:
        await af.tool(fail if threaded else afail).call({}, context())
    assert caught.value is error


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("look away")


@pytest.mark.parametrize(
    ("value", "content", "is_error"),
    [
        (None, "(no output)", False),
        (b"\xff\x00", "\ufffd\x00", False),
        (Shy(), "RuntimeError: look away", True),
        (af.ToolResult(None), "(no output)", False),  # type: ignore[arg-type]
        ("y" * 10_000_000, "of 10000000 characters cut", False),
        (b"\xff" * 10_000_000, "characters cut", False),
    ],
    ids=["none", "bytes", "shy", "result", "huge", "huge-bytes"],
)
@pytest.mark.parametrize("threaded", [True, False])
async def test_whatever_a_tool_returns_is_an_observation(
    value: object, content: str, is_error: bool, threaded: bool
) -> None:
    def give() -> object:
        return value

    async def agive() -> object:
        return value

    result = await af.tool(max_output=1000)(give if threaded else agive).call({}, context())
    assert content in result.content
    assert result.is_error == is_error
    assert len(result.content) <= 1000


async def test_a_blocking_tool_is_left_behind_at_its_limit() -> None:
    release = threading.Event()

    @af.tool(timeout=0.05)
    def block() -> None:
        """Block."""
        release.wait(60)

    try:
        result = await block.call({}, context())
    finally:
        release.set()
    assert result == af.ToolResult("Tool 'block' timed out after 0.05 seconds", is_error=True)


async def test_a_hanging_tool_is_cancelled_at_its_limit_and_may_clean_up() -> None:
    cleaned = False

    @af.tool(timeout=0.05)
    async def hang() -> None:
        """Hang."""
        nonlocal cleaned
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned = True

    result = await hang.call({}, context())
    assert result.is_error
    assert "timed out" in result.content
    assert cleaned


async def test_a_tool_that_refuses_its_cancellation_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfly.agent.execution._CANCEL_GRACE", 0.05)
    release = asyncio.Event()

    @af.tool(timeout=0.05)
    async def stubborn() -> None:
        """Go on."""
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    result = await stubborn.call({}, context())
    release.set()
    assert result.is_error
    assert "timed out" in result.content


async def test_waiting_for_resources_does_not_count() -> None:
    class Queueing(Context):
        seconds = 0.0

        @property
        def waited(self) -> float:
            return self.seconds

    base = context()
    ctx = Queueing(rollout_id="r", group_id="g", task=base.task)

    @af.tool(timeout=0.05)
    async def queue() -> str:
        """Queue."""
        ctx.seconds = 60.0
        await asyncio.sleep(0.1)
        return "served"

    assert (await queue.call({}, ctx)).content == "served"


@pytest.mark.parametrize("threaded", [True, False])
async def test_cancelling_the_caller_cancels_the_call(threaded: bool) -> None:
    begun, release = threading.Event(), threading.Event()
    cancelled = False

    def block() -> None:
        begun.set()
        release.wait(60)

    async def hang() -> None:
        nonlocal cancelled
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise

    task = asyncio.create_task(af.tool(block if threaded else hang).call({}, context()))
    try:
        while not begun.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        release.set()
    assert cancelled is not threaded


def test_a_blocked_thread_does_not_hold_up_the_end_of_the_process() -> None:
    program = """
import asyncio, threading
import agentfly.agent as af
from agentfly.context import Context, Task

@af.tool(timeout=0.05)
def block() -> None:
    "Block."
    threading.Event().wait()

ctx = Context(rollout_id="r", group_id="g", task=Task("t"))
print(asyncio.run(block.call({}, ctx)).content)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "timed out" in done.stdout
    assert done.stderr == ""
