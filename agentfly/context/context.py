"""A rollout's identity, what it holds, and what the engine has to say about it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeVar
from uuid import uuid4

from agentfly.context.leases import LeaseBook
from agentfly.context.task import Task
from agentfly.context.waits import Waits
from agentfly.errors import ResourceError
from agentfly.resources import Fault, Lease, ResourceClient, ResourceSpec

R = TypeVar("R")
Scope = Literal["call", "rollout", "group", "global"]

_call: ContextVar[LeaseBook | None] = ContextVar("agentfly_call", default=None)


class Context:
    """What a tool or a reward gets when it asks for `ctx`.

    Attributes:
        rollout_id, group_id: unique in the job.
        task: what was asked.
        turn: of the conversation, from 0.
        priority: of its requests, lower first.
        rng: seeded by the rollout: the same rollout draws the same numbers.
        metrics: what was logged.
        faults: the engine's ledger; nobody else writes it.

    Args:
        client: this process's way to the pools; without one nothing can be acquired.
        priority: of its requests, lower first: the rollout's age.
        claims: all specs that the rollout may hold at the same time, as its agent's tools name them; they let the
            engine keep rollouts out of deadlocks.
        shared: the leases of scope `global`, one book for the process; the rollout's own when None.
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
        claims: Sequence[ResourceSpec[Any]] = (),
        shared: LeaseBook | None = None,
    ) -> None:
        self.rollout_id = rollout_id
        self.group_id = group_id
        self.task = task
        self.turn = 0
        self.rng = random.Random(seed)
        self.metrics: dict[str, float] = {}
        self.faults: list[Fault] = []
        self._client = client
        self.priority = priority
        self._claims = claims
        # Attempts at one rollout follow each other so closely that their leases may overlap.
        self._holder = f"{rollout_id}:{uuid4().hex[:8]}"
        self._leases = LeaseBook()
        self._group_leases = LeaseBook()
        self._global = shared if shared is not None else LeaseBook()
        self._owns_global = shared is None
        self._views: dict[Lease[Any], Any] = {}
        self._waits = Waits()

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
            setup: keyword arguments of the resource's `setup`; used by the first who asks in the scope.
            scope: until when. `call`: the end of this tool call. `rollout`: the end of the rollout. `group`: shared
                by the rollouts of the group, until the last that uses it has ended. `global`: shared by all
                rollouts of the job, until it ends.
            timeout: seconds to queue at most; the spec's own limit when None.

        Raises:
            ResourceError: it can't be had (`PoolSaturated`, `AcquireTimeout`, `StartFailed`, `Deadlock`).
            Exception: what `setup` raised.
        """
        client = self._client
        if client is None:
            raise ResourceError(f"{spec.name!r} can't be acquired: this context has no resource engine behind it")
        book = self._book(spec, scope)
        # What all share goes on after this rollout, so it isn't counted among what the rollout holds.
        owned = scope != "global"

        async def acquire() -> Lease[R]:
            return await client.acquire(
                spec,
                priority=self.priority,
                holder=self._holder if owned else "",
                claims=self._claims if owned else (),
                share={"group": f"group {self.group_id}", "global": "global"}.get(scope, ""),
                setup=setup,
                timeout=timeout,
                faults=self.faults.append,
            )

        with self._waits:
            lease = await book.get(spec, acquire)
        view: R | None = self._views.get(lease)
        if view is None:
            view = self._views[lease] = lease.seen_by(self.faults.append, self._waits)
        return view

    @contextmanager
    def call_scope(self) -> Iterator[None]:
        """One tool call: what is acquired in the block for the scope `call` is given back at its end."""
        book = LeaseBook()
        token = _call.set(book)
        try:
            yield
        finally:
            _call.reset(token)
            book.close()

    def log(self, **metrics: float) -> None:
        """Record numbers; of the same name the last one counts."""
        self.metrics.update({name: float(value) for name, value in metrics.items()})

    async def close(self) -> None:
        """Give everything of the rollout's and the group's scope back. May be called again."""
        self._leases.close()
        self._group_leases.close()
        if self._owns_global:
            self._global.close()
        self._views.clear()

    def _book(self, spec: ResourceSpec[Any], scope: Scope) -> LeaseBook:
        match scope:
            case "rollout":
                return self._leases
            case "group":
                return self._group_leases
            case "global":
                return self._global
        book = _call.get()
        if book is None:
            raise ResourceError(f"{spec.name!r} can't be acquired for the scope 'call' outside of a tool call")
        return book
