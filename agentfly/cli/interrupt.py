"""Runs a coroutine that Ctrl-C (or a job's stop signal) ends in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The user ended the run; everything was cleaned up."""


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. The first signal cancels the work, which cleans up; a second one ends at once.

    Raises:
        Interrupted: a signal came.
    """

    async def main() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        signals = 0

        def on_signal() -> None:
            nonlocal signals
            signals += 1
            if signals > 1:
                os._exit(130)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        try:
            return await task
        except asyncio.CancelledError:
            if signals:
                raise Interrupted from None
            raise

    return asyncio.run(main())
