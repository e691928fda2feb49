"""The leases of one scope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agentfly.errors import ResourceError
from agentfly.resources import Lease, ResourceSpec

R = TypeVar("R")


class LeaseBook:
    """One lease for each spec; parallel requests for a spec share one."""

    def __init__(self) -> None:
        self._leases: dict[str, asyncio.Task[Lease[Any]]] = {}
        self._closed = False

    async def get(self, spec: ResourceSpec[R], acquire: Callable[[], Coroutine[Any, Any, Lease[R]]]) -> Lease[R]:
        """The scope's lease of this spec; acquired by the first who asks, and anew when it was lost.

        Raises:
            ResourceError: the scope has ended.
            Exception: what `acquire` raises.
        """
        if self._closed:
            raise ResourceError(f"{spec.name!r} can't be acquired: its scope has ended")
        task: asyncio.Task[Lease[R]] | None = self._leases.get(spec.key)
        if task is not None and _is_useless(task):
            _release(task)
            task = None
        if task is None:
            task = self._leases[spec.key] = asyncio.create_task(acquire())
        try:
            # One who is cancelled must not take the lease from the others who wait for it.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ResourceError(f"{spec.name!r} can't be acquired: its scope has ended") from None
            raise

    def close(self) -> None:
        """Release all; whoever still waits is told that the scope has ended."""
        self._closed = True
        for task in self._leases.values():
            if task.done():
                _release(task)
            else:
                task.add_done_callback(_release)
                task.cancel()
        self._leases.clear()


def _is_useless(task: asyncio.Task[Lease[Any]]) -> bool:
    """Whether the next one should try anew: it failed, or its resource is gone."""
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().lost)


def _release(task: asyncio.Task[Lease[Any]]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().release()
