"""Runs the engine's steps in a thread, so that the event loop of its process stays responsive."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

import torch

from agentfly.errors import ModelError
from agentfly.models.engine import Completion, Piece
from agentfly.models.local.core import EngineCore

T = TypeVar("T")
Outcome = tuple[int, "Completion | Piece | ModelError"]
_log = logging.getLogger(__name__)


class EngineThread:
    """A thread that owns an `EngineCore`: between steps it carries out what others ask of it.

    Args:
        load: makes the core, in the thread.
        deliver: called in the event loop with the outcomes of ended sequences, and the pieces of those that are
            listened to.
    """

    def __init__(self, load: Callable[[], EngineCore], deliver: Callable[[list[Outcome]], None]) -> None:
        self._load = load
        self._deliver_in_loop = deliver
        self._loop = asyncio.get_running_loop()
        self._commands: queue.SimpleQueue[Callable[[EngineCore], None]] = queue.SimpleQueue()
        self._outcomes: list[Outcome] = []
        self._paused = False
        self._stopping = False
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="agentfly-engine", daemon=True)
        self.failures = 0

    async def start(self) -> None:
        """Load the model; raises what loading raised."""
        self._thread.start()
        await asyncio.shield(self._started)

    async def stop(self) -> None:
        """End the thread after the step that it is in, and wait for it. Unfinished sequences fail."""
        self.end()
        await asyncio.to_thread(self._thread.join)

    def end(self) -> None:
        """As `stop`, without waiting."""
        self.post(lambda _: self._set_stopping())

    async def pause(self) -> None:
        """Take no further step; returns when none is under way."""
        await self.call(lambda _: self._set_paused(True))

    async def resume(self) -> None:
        """Go on."""
        await self.call(lambda _: self._set_paused(False))

    def post(self, command: Callable[[EngineCore], None]) -> None:
        """Have a command carried out between steps. It must not raise."""
        self._commands.put(command)

    async def call(self, function: Callable[[EngineCore], T]) -> T:
        """Have a function carried out between steps, and wait for its result or its exception."""
        future: asyncio.Future[T] = self._loop.create_future()

        def command(core: EngineCore) -> None:
            try:
                result = function(core)
            except Exception as error:
                self._in_loop(_fail, future, error)
            else:
                self._in_loop(_succeed, future, result)

        self.post(command)
        return await future

    def deliver(self, outcomes: list[tuple[int, Completion]]) -> None:
        """Deliver these with the next flush; for commands, in the thread."""
        self._outcomes.extend(outcomes)

    def _run(self) -> None:
        try:
            core = self._load()
        except Exception as error:
            self._in_loop(_fail, self._started, error)
            return
        self._in_loop(_succeed, self._started, None)
        with torch.inference_mode():
            while not self._stopping:
                self._carry_out(core)
                if core.busy and not self._paused and not self._stopping:
                    self._step(core)
                self._flush()
            self._lose(core, ModelError("the engine was stopped"))
            self._flush()

    def _carry_out(self, core: EngineCore) -> None:
        """All commands that wait; waits for one itself when there is nothing to compute."""
        wait = self._paused or not core.busy
        while True:
            try:
                command = self._commands.get(block=wait)
            except queue.Empty:
                return
            command(core)
            wait = False

    def _step(self, core: EngineCore) -> None:
        try:
            self._outcomes.extend(core.step())
            self._outcomes.extend(core.pieces())
            self.failures = 0
        except Exception as error:
            _log.exception("engine step failed")
            self.failures += 1
            reason = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
            self._lose(core, ModelError(f"the engine failed: {reason}"))

    def _lose(self, core: EngineCore, error: ModelError) -> None:
        self._outcomes.extend((sequence, error) for sequence in core.reset())

    def _flush(self) -> None:
        if self._outcomes:
            outcomes, self._outcomes = self._outcomes, []
            self._in_loop(self._deliver_in_loop, outcomes)

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused

    def _set_stopping(self) -> None:
        self._stopping = True

    def _in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop was closed: nobody waits any more
            self._stopping = True


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
