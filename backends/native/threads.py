"""Long computations beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def compute(work: Callable[[Callable[[], bool]], T]) -> T:
    """Run work in a thread; cancelled, it is asked to stop and awaited, so that nothing runs on behind one's back.

    Args:
        work: gets a function that says whether it should stop early.
    """
    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, stop.is_set))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([task])
        raise
