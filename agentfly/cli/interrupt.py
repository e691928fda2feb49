"""Runs a coroutine that Ctrl-C (or a job's stop signal) ends in order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The user ended the run; everything was cleaned up.

    Attributes:
        exit_code: as shells have it for the signal: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = _exit_code(number)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. The first signal cancels the work, which cleans up; a second one ends at once.

    Raises:
        Interrupted: a signal came.
    """

    async def main() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        received: list[int] = []

        def on_signal(number: int) -> None:
            received.append(number)
            if len(received) > 1:
                os._exit(_exit_code(number))
            print("agentfly: stopping; once more to leave at once", file=sys.stderr, flush=True)  # noqa: T201
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        try:
            return await task
        except asyncio.CancelledError:
            if received:
                raise Interrupted(received[0]) from None
            raise

    return asyncio.run(main())


def _exit_code(number: int) -> int:
    return 128 + number
