"""When a call queues inside a resource: told to the lessee, whose time limits don't run meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar, cast

T = TypeVar("T")


class Phase(Enum):
    """What a call does from now on."""

    QUEUES = "queues"
    WORKS = "works"


_END = object()
_tell: contextvars.ContextVar[Callable[[Phase], None] | None] = contextvars.ContextVar("agentfly_phase", default=None)


@contextmanager
def queueing() -> Iterator[None]:
    """A resource wraps its own waiting for a turn in this; the time isn't its caller's."""
    tell = _tell.get()
    if tell is None:
        yield
        return
    tell(Phase.QUEUES)
    try:
        yield
    finally:
        tell(Phase.WORKS)


async def in_phases(items: AsyncGenerator[T]) -> AsyncGenerator[T | Phase]:
    """The items of a generator, and between them what it does, as it comes about."""
    told: asyncio.Queue[Phase | None] = asyncio.Queue()
    context = contextvars.copy_context()
    context.run(_tell.set, told.put_nowait)

    async def next_item() -> T | object:
        return await anext(items, _END)

    try:
        while True:
            step = asyncio.get_running_loop().create_task(next_item(), context=context)
            step.add_done_callback(lambda _: told.put_nowait(None))
            try:
                while (phase := await told.get()) is not None:
                    yield phase
            finally:
                if not step.done():
                    step.cancel()
                    await asyncio.wait({step})
            if (item := step.result()) is _END:
                return
            yield cast(T, item)
    finally:
        await items.aclose()
