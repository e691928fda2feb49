"""A rollout's identity, what it holds, and what the engine has to say about it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from agentfly.context.task import Task
from agentfly.errors import ResourceError
from agentfly.resources import Fault, Lease, ResourceClient, ResourceSpec

R = TypeVar("R")
Scope = Literal["rollout", "global"]


class Context:
    """What a tool or a reward gets when it asks for `ctx`.

    Attributes:
        rollout_id, group_id: unique in the job.
        task: what was asked.
        turn: of the conversation, from 0.
        rng: seeded by the rollout: the same rollout draws the same numbers.
        metrics: what was logged.
        faults: the engine's ledger; nobody else writes it.
    """

    def __init__(
        self,
        *,
        rollout_id: str,
        group_id: str,
        task: Task,
        seed: int = 0,
        client: ResourceClient | None = None,
        priority: float = 0.0,
        shared: GlobalLeases | None = None,
    ) -> None:
        self.rollout_id = rollout_id
        self.group_id = group_id
        self.task = task
        self.turn = 0
        self.rng = random.Random(seed)
        self.metrics: dict[str, float] = {}
        self.faults: list[Fault] = []
        self._client = client
        self._priority = priority
        self._shared = shared
        self._leases = LeaseBook()
        self._waits = _Waits()

    @property
    def waited(self) -> float:
        """Seconds that the rollout has queued for resources, a wait in progress included."""
        return self._waits.total

    async def acquire(
        self,
        spec: ResourceSpec[R],
        *,
        setup: Mapping[str, Any] | None = None,
        scope: Scope = "rollout",
        timeout: float | None = None,
    ) -> R:
        """Lease a resource; the same spec again is the same resource, until the scope ends.

        Args:
            spec: what is wanted.
            setup: keyword arguments of the resource's `setup`; used by the first call of the scope only.
            scope: `rollout`: given back when the rollout ends. `global`: one for the whole worker process,
                given back when it ends.
            timeout: seconds to queue at most.

        Raises:
            ResourceError: it can't be had (`PoolSaturated`, `AcquireTimeout`, `StartFailed`).
            Exception: what `setup` raised.
        """
        client = self._client
        if client is None:
            raise ResourceError(f"{spec.name!r} can't be acquired: this context has no resource engine behind it")

        async def lease() -> Lease[R]:
            with self._waits:
                return await client.acquire(
                    spec, priority=self._priority, setup=setup, timeout=timeout, faults=self.faults.append
                )

        book = self._leases
        if scope == "global":
            if self._shared is None:
                raise ResourceError(f"{spec.name!r} can't be acquired for the scope 'global': there is none here")
            book = self._shared
        return await book.get(spec, lease)

    def log(self, **metrics: float) -> None:
        """Record numbers; of the same name the last one counts."""
        self.metrics.update({name: float(value) for name, value in metrics.items()})

    async def close(self) -> None:
        """Give everything of the rollout's scope back. May be called again."""
        self._leases.close()


class LeaseBook:
    """The leases of one scope, one for each spec; parallel requests for a spec share one."""

    def __init__(self) -> None:
        self._leases: dict[ResourceSpec[Any], asyncio.Task[Lease[Any]]] = {}
        self._closed = False

    async def get(self, spec: ResourceSpec[R], lease: Callable[[], Any]) -> R:
        """The scope's resource of this spec; leased by the first who asks."""
        if self._closed:
            raise ResourceError(f"{spec.name!r} can't be acquired: its scope has ended")
        task: asyncio.Task[Lease[R]] | None = self._leases.get(spec)
        if task is None:
            task = asyncio.ensure_future(lease())
            self._leases[spec] = task
        try:
            # One who is cancelled must not take the lease from the others who wait for it.
            leased: Lease[R] = await asyncio.shield(task)
            return leased.resource
        except BaseException:
            if task.done() and self._leases.get(spec) is task:
                del self._leases[spec]  # the next may have more luck
            raise

    def close(self) -> None:
        """Release all; whoever still waits is cancelled."""
        self._closed = True
        for task in self._leases.values():
            if task.done():
                _release(task)
            else:
                task.add_done_callback(_release)
                task.cancel()
        self._leases.clear()


GlobalLeases = LeaseBook
"""The book that all rollouts of a process share."""


def _release(task: asyncio.Task[Lease[Any]]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().release()


class _Waits:
    """Seconds in which at least one wait was in progress."""

    def __init__(self) -> None:
        self._running = 0
        self._since = 0.0
        self._sum = 0.0

    @property
    def total(self) -> float:
        return self._sum + (time.monotonic() - self._since if self._running else 0.0)

    def __enter__(self) -> None:
        if self._running == 0:
            self._since = time.monotonic()
        self._running += 1

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        if self._running == 0:
            self._sum += time.monotonic() - self._since
