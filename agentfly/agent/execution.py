"""Runs a user's function under a time limit, whatever it does: raise, hang, block, refuse to be cancelled."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from agentfly.context.deadline import working_time
from agentfly.errors import ModelError, ResourceError

_CANCEL_GRACE: Final = 1.0
"""Seconds that a cancelled coroutine has for its own cleaning up before it is left behind."""


@dataclass(frozen=True)
class Outcome:
    """What a function did: gave a value, or raised."""

    value: Any = None
    error: BaseException | None = None


async def run_limited(
    function: Callable[[], Any], *, name: str, threaded: bool, limit: float | None, waited: Callable[[], float]
) -> Outcome:
    """Call a function and keep whatever it raises in the outcome.

    Threads can't be killed and coroutines may ignore their cancellation: after the limit either is left
    behind. The threads are daemons, so that they don't hold up the end of the process.

    Args:
        function: takes no arguments.
        name: of the thread or task, for debuggers.
        threaded: run it in a thread of its own, for functions that block.
        limit: seconds of work; None is no limit.
        waited: seconds that its owner has queued for resources; they don't count.

    Raises:
        TimeoutError: the limit has passed.
        asyncio.CancelledError: the caller was cancelled.
    """
    work = _in_thread(function, name) if threaded else _on_loop(function)
    task = asyncio.create_task(work, name=name)
    try:
        async with working_time(limit, waited):
            await asyncio.wait({task})
    finally:
        if not task.done():
            task.cancel()
            if not threaded:
                await asyncio.wait({task}, timeout=_CANCEL_GRACE)
    return task.result()


def engine_fault(error: BaseException) -> ResourceError | ModelError | None:
    """The engine's own exception in what a function raised, also inside the groups of a TaskGroup."""
    if isinstance(error, (ResourceError, ModelError)):
        return error
    for inner in getattr(error, "exceptions", ()):
        if isinstance(inner, BaseException) and (fault := engine_fault(inner)) is not None:
            return fault
    return None


def describe(error: BaseException) -> str:
    """Type and message of an exception, even one whose message can't be had."""
    try:
        message = str(error)
    except Exception:
        message = "(its message can't be shown)"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


async def _on_loop(function: Callable[[], Any]) -> Outcome:
    try:
        value = function()
        return Outcome(await value if inspect.isawaitable(value) else value)
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        return Outcome(error=error)  # the function's own doing, its caller goes on
    except BaseException as error:  # SystemExit and KeyboardInterrupt would stop the loop
        return Outcome(error=error)


async def _in_thread(function: Callable[[], Any], name: str) -> Outcome:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        try:
            outcome = Outcome(context.run(function))
        except BaseException as error:  # of a tool's nothing may end the thread unheard
            outcome = Outcome(error=error)
        try:
            loop.call_soon_threadsafe(deliver, outcome)
        except RuntimeError:
            pass  # the loop has ended: the call was left behind long ago

    threading.Thread(target=work, name=name, daemon=True).start()
    return await done


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
