"""A process's way to the pools."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Self, TypeVar, cast

import ray

from agentfly.errors import AcquireTimeout, ResourceDied, ResourceError, StartFailed
from agentfly.resources.card import card_of
from agentfly.resources.core.types import Lease as CoreLease
from agentfly.resources.core.types import PoolStats, Request
from agentfly.resources.faults import Fault, FaultSink, ignore_faults
from agentfly.resources.link import Answered, ManagerLink, new_replay
from agentfly.resources.proxy import Channel, Proxy
from agentfly.resources.resource import Resource
from agentfly.resources.spec import ResourceSpec

R = TypeVar("R")
_SETUP_TRIES = 3
_RETRY = 0.2


class Lease(Generic[R]):
    """A resource that is lent to a holder until it is released.

    Attributes:
        waited: seconds in the queue.
        lost: a call has shown that the resource is gone, or that the lease has ended.
    """

    def __init__(
        self, spec: ResourceSpec[R], answered: Answered, waited: float, link: ManagerLink, faults: FaultSink
    ) -> None:
        self.waited = waited
        self.lost = False
        self._spec = spec
        self._lease: CoreLease = answered.lease
        self._host = answered.host
        self._link = link
        self._faults = faults
        self._released = False

    @property
    def resource(self) -> R:
        """The resource, as a proxy of its own type; faults go to the ledger of whoever acquired it."""
        return self.seen_by(self._faults)

    def seen_by(self, faults: FaultSink, waits: AbstractContextManager[Any] | None = None) -> R:
        """The resource in the hands of one of several who share the lease.

        Args:
            faults: get those in its calls.
            waits: entered while a call queues in the resource.
        """
        return cast(R, Proxy(self._spec.resource, self.channel(faults, waits)))

    def channel(self, faults: FaultSink, waits: AbstractContextManager[Any] | None = None) -> Channel:
        """The way to the host."""
        return Channel(self._spec, self._lease, self._host, self._is_valid, self._on_loss, faults, waits)

    def release(self) -> None:
        """Give it back; a second time changes nothing. Never blocks, so it is safe under cancellation."""
        self._released = True
        self._link.give_back(self._lease.ticket)

    def _is_valid(self) -> bool:
        return not (self._released or self._link.closed)

    def _on_loss(self) -> None:
        self.lost = True
        self._link.suspect(self._lease)


class ResourceClient:
    """One for each process. Make it with `connect`; it belongs to the event loop that made it."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._link = ManagerLink(manager)
        self._tickets = itertools.count()

    @classmethod
    async def connect(cls, manager: Any) -> Self:
        """Connect this process to a job's manager.

        Raises:
            ResourceError: the manager is gone.
        """
        client = cls(manager)
        await client._link.open()
        return client

    async def acquire(
        self,
        spec: ResourceSpec[R],
        *,
        priority: float = 0.0,
        holder: str = "",
        claims: Sequence[ResourceSpec[Any]] = (),
        share: str = "",
        setup: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        faults: FaultSink = ignore_faults,
    ) -> Lease[R]:
        """Lease a resource, waiting in the pool's queue for it.

        Args:
            spec: what is wanted.
            priority: lower is served first; equal ones in order of arrival.
            holder: the rollout that will have it, unique in the job; empty for one that has nothing else.
            claims: all that the holder may hold at the same time; with them a deadlock can't come about, without
                them one of those who wait in a circle is told to give way (`Deadlock`).
            share: who asks for the same spec with the same share gets the same lease, until the last gives it back.
            setup: keyword arguments of the resource's `setup`, which runs once for the lease.
            timeout: seconds to wait at most; the spec's own limit when None.
            faults: the holder's ledger; gets what the engine has to answer for.

        Raises:
            PoolSaturated: the queue is full.
            AcquireTimeout: nothing was free in time.
            StartFailed: the resource can't be started.
            Deadlock: this holder has to give way.
            Exception: what `setup` raised.
        """
        started = time.monotonic()
        limit = spec.acquire_timeout if timeout is None else timeout
        for remaining in reversed(range(_SETUP_TRIES)):
            ticket = f"{self._link.id}:{next(self._tickets)}"
            keys = tuple(claim.key for claim in claims)
            request = Request(ticket, self._link.id, spec.key, priority, holder, keys, share)
            try:
                answered = await self._granted(request, [spec, *claims], limit)
            except ResourceError as error:
                faults(Fault(type(error).__name__, spec.name, str(error)))
                raise
            lease = Lease(spec, answered, time.monotonic() - started, self._link, faults)
            try:
                # Nothing has happened in a lease whose host dies before its setup is done: take another one.
                await self._set_up(spec, lease.channel(faults if remaining == 0 else ignore_faults), setup)
            except BaseException as error:
                lease.release()
                if not (lease.lost and isinstance(error, ResourceDied)) or remaining == 0:
                    raise
                await asyncio.sleep(_RETRY)  # for the manager to see that the host is dead
            else:
                return lease
        raise AssertionError("unreachable")

    async def broadcast(self, spec: ResourceSpec[Any], method: str, *args: Any, replay: bool = False) -> list[Any]:
        """Call a method on every resource of a pool; the arguments cross to each node once.

        Args:
            replay: resources that start later get the latest such call before they serve. Such a call is repeated
                if the manager is restarted in its middle.

        Raises:
            ResourceError: the manager is gone, or was restarted in the middle of a call that isn't to be repeated.
            Exception: the first that a resource raised.
        """
        card = card_of(spec)
        reference = ray.put(args)
        kept = new_replay(spec, method, reference) if replay else None
        if kept is not None:
            self._link.remember(kept)
        while True:
            try:
                results: list[Any] = await self._manager.broadcast.remote(card, method, [reference], kept)
            except ray.exceptions.RayTaskError as error:
                raise _cause(error) from None
            except ray.exceptions.RayError as error:
                if kept is None or not isinstance(error, ray.exceptions.ActorUnavailableError):
                    raise ResourceError(f"the resource manager was lost during {method}() of {spec.name!r}") from error
                await asyncio.sleep(_RETRY)
            else:
                return results

    async def stats(self) -> dict[str, PoolStats]:
        """Every pool of the job at this moment, by name; of two with one name, one has a part of its key added."""
        pools: dict[str, PoolStats] = {}
        for stats in await self._manager.stats.remote():
            pools[stats.name if stats.name not in pools else f"{stats.name}-{stats.key[:6]}"] = stats
        return pools

    async def close(self) -> None:
        """Give everything back and end."""
        await self._link.close()

    async def _granted(self, request: Request, specs: list[ResourceSpec[Any]], timeout: float | None) -> Answered:
        answer = self._link.ask(request, specs)
        try:
            return await asyncio.wait_for(answer, timeout)
        except TimeoutError:
            self._link.give_back(request.ticket)
            raise AcquireTimeout(
                f"no {specs[0].name!r} was free within {timeout:g} s: raise max_size or wait longer"
            ) from None
        except BaseException:
            self._link.give_back(request.ticket)
            raise

    @staticmethod
    async def _set_up(spec: ResourceSpec[Any], channel: Channel, setup: Mapping[str, Any] | None) -> None:
        if setup is None and spec.resource.setup is Resource.setup:
            return
        try:
            await asyncio.wait_for(channel.call("setup", **(setup or {})), spec.setup_timeout)
        except TimeoutError:
            raise StartFailed(f"setup of {spec.name!r} took longer than {spec.setup_timeout:g} s") from None


def _cause(error: BaseException) -> BaseException:
    """What was raised where it was raised, behind one task error for each process that it crossed."""
    while isinstance(error, ray.exceptions.RayTaskError) and error.cause is not None:
        error = error.cause
    return error
