"""Background tasks that are neither lost nor silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger(__name__)


class TaskSet:
    """Keeps tasks alive until they end, and says what goes wrong in them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Cancel all."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task failed", exc_info=error)


async def within(seconds: float, reference: Any) -> Any:
    """The result of a Ray call.

    Raises:
        TimeoutError: it took longer.
    """

    async def wait() -> Any:
        return await reference

    return await asyncio.wait_for(wait(), seconds)
