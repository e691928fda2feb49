"""A time limit that doesn't run while its owner queues for a resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def working_time(limit: float | None, waited: Callable[[], float]) -> AsyncIterator[None]:
    """Raise TimeoutError in the block after `limit` seconds of it, queueing not counted.

    Args:
        limit: seconds of work allowed; None never fires.
        waited: seconds its owner has queued since it began, waits still in progress included.
    """
    if limit is None:
        yield
        return
    loop = asyncio.get_running_loop()
    start, before = loop.time(), waited()
    handle: asyncio.TimerHandle | None = None
    async with asyncio.timeout(None) as timeout:

        def fire_or_rearm() -> None:
            nonlocal handle
            when = start + limit + waited() - before
            if when <= loop.time():
                timeout.reschedule(loop.time())
            else:
                handle = loop.call_at(when, fire_or_rearm)

        handle = loop.call_at(start + limit, fire_or_rearm)
        try:
            yield
        finally:
            handle.cancel()
