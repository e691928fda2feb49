"""A process's way to the pools: everything its rollouts ask for goes in one call at a time."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, cast
from uuid import uuid4

import ray

from agentfly.errors import AcquireTimeout, PoolSaturated, ResourceDied, ResourceError, StartFailed
from agentfly.resources.core.types import Grant, PoolStats, Reject
from agentfly.resources.faults import Fault, FaultSink, ignore_faults
from agentfly.resources.messages import News, Update
from agentfly.resources.proxy import Channel, Proxy
from agentfly.resources.resource import Resource
from agentfly.resources.spec import ResourceSpec

R = TypeVar("R")
_HEARTBEAT = 3.0
_SETUP_TRIES = 3


@dataclass
class Lease(Generic[R]):
    """A resource that is lent to a holder until it is released.

    Attributes:
        resource: the resource, as a proxy of its own type.
        waited: seconds in the queue.
    """

    resource: R
    waited: float
    _client: ResourceClient
    _ticket: str

    def release(self) -> None:
        """Give it back; a second time changes nothing. Never blocks, so it is safe under cancellation."""
        self._client.give_back(self._ticket)


class ResourceClient:
    """One for each process. Make it with `connect`; it belongs to the event loop that made it.

    Acquires and releases of all rollouts are gathered while a call to the manager is under way and go with the
    next one; answers come back on a single waiting call. Signs of life are sent from a thread, so that a busy
    event loop isn't taken for a dead process.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._id = uuid4().hex
        self._tickets = itertools.count()
        self._known_specs: dict[str, ResourceSpec[Any]] = {}
        self._keys: dict[ResourceSpec[Any], str] = {}
        self._outgoing = Update()
        self._say = asyncio.Event()
        self._waiting: dict[str, asyncio.Future[Grant]] = {}
        self._held: set[str] = set()
        self._hosts: dict[str, Any] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = threading.Event()
        self._failure: ResourceError | None = None

    @classmethod
    async def connect(cls, manager: Any) -> Self:
        """Connect this process to a job's manager."""
        client = cls(manager)
        client._tasks = [asyncio.create_task(client._speak()), asyncio.create_task(client._listen())]
        threading.Thread(target=client._show_life, name="resource-heartbeat", daemon=True).start()
        return client

    async def acquire(
        self,
        spec: ResourceSpec[R],
        *,
        priority: float = 0.0,
        setup: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        faults: FaultSink = ignore_faults,
    ) -> Lease[R]:
        """Lease a resource, waiting in the pool's queue for it.

        Args:
            spec: what is wanted.
            priority: lower is served first; equal ones in order of arrival.
            setup: keyword arguments of the resource's `setup`, which runs once for the lease.
            timeout: seconds to wait at most.
            faults: the holder's ledger; gets what the engine has to answer for.

        Raises:
            PoolSaturated: the queue is full.
            AcquireTimeout: nothing was free in time.
            StartFailed: the resource can't be started.
            Exception: what `setup` raised.
        """
        started = time.monotonic()
        for remaining in reversed(range(_SETUP_TRIES)):
            ticket = f"{self._id}:{next(self._tickets)}"
            try:
                grant = await self._granted(ticket, spec, priority, timeout)
            except ResourceError as error:
                faults(Fault(type(error).__name__, spec.name, str(error)))
                raise
            waited = time.monotonic() - started
            # Nothing has happened in a lease whose host dies before its setup is done: take another one.
            last = remaining == 0
            try:
                await self._set_up(spec, self._channel(spec, grant, faults if last else ignore_faults), setup)
            except ResourceDied:
                self.give_back(ticket)
                if last:
                    raise
                continue
            except BaseException:
                self.give_back(ticket)
                raise
            proxy = Proxy(spec.resource, self._channel(spec, grant, faults))
            return Lease(cast(R, proxy), waited, self, ticket)
        raise AssertionError("unreachable")

    def give_back(self, ticket: str) -> None:
        """Release a lease or take a request back; unknown tickets change nothing."""
        self._waiting.pop(ticket, None)
        if ticket in self._held:
            self._held.discard(ticket)
            self._outgoing.releases.append(ticket)
            self._say.set()

    async def broadcast(self, spec: ResourceSpec[Any], method: str, *args: Any, replay: bool = False) -> list[Any]:
        """Call a method on every resource of a pool; the arguments cross to each node once.

        Args:
            replay: resources that start later get the latest such call before they serve.

        Raises:
            Exception: the first that a resource raised.
        """
        reference = ray.put(args)
        try:
            results: list[Any] = await self._manager.broadcast.remote(
                self._key(spec), spec, method, [reference], replay
            )
        except ray.exceptions.RayTaskError as error:
            raise _cause(error) from None
        return results

    async def stats(self) -> dict[str, PoolStats]:
        """Every pool of the job at this moment, by name."""
        return {stats.name: stats for stats in await self._manager.stats.remote()}

    async def close(self) -> None:
        """Give everything back and end."""
        self._ended.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail(ResourceError("the resource client is closed"))
        try:
            await self._manager.goodbye.remote(self._id)
        except ray.exceptions.RayError:
            pass  # no manager, no leases

    # Asking

    async def _granted(self, ticket: str, spec: ResourceSpec[Any], priority: float, timeout: float | None) -> Grant:
        if self._failure is not None:
            raise self._failure
        answer: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = answer
        self._held.add(ticket)
        key = self._key(spec)
        if key not in self._known_specs:
            self._known_specs[key] = self._outgoing.specs[key] = spec
        self._outgoing.acquires.append((ticket, key, priority))
        self._say.set()
        try:
            return await asyncio.wait_for(answer, timeout)
        except TimeoutError:
            self.give_back(ticket)
            raise AcquireTimeout(
                f"no {spec.name!r} was free within {timeout:g} s: raise max_size or wait longer"
            ) from None
        except BaseException:
            self.give_back(ticket)
            raise

    async def _set_up(self, spec: ResourceSpec[Any], channel: Channel, setup: Mapping[str, Any] | None) -> None:
        if setup is None and spec.resource.setup is Resource.setup:
            return
        try:
            await asyncio.wait_for(channel.call("setup", **(setup or {})), spec.setup_timeout)
        except TimeoutError:
            raise StartFailed(f"setup of {spec.name!r} took longer than {spec.setup_timeout:g} s") from None

    def _channel(self, spec: ResourceSpec[Any], grant: Grant, faults: FaultSink) -> Channel:
        lease = grant.lease

        def died() -> None:
            self._hosts.pop(lease.host, None)
            self._outgoing.dead_hosts.append((lease.pool, lease.host))
            self._say.set()

        host = self._hosts.get(lease.host)
        if host is None:
            raise ResourceDied(f"the host of {spec.name!r} died before it could be used")
        return Channel(spec, lease, host, died, faults)

    def _key(self, spec: ResourceSpec[Any]) -> str:
        # A digest takes long compared with the rest of an acquire, so that of the same object is remembered.
        if spec not in self._keys:
            self._keys[spec] = spec.key
        return self._keys[spec]

    # The two calls

    async def _speak(self) -> None:
        while True:
            await self._say.wait()
            self._say.clear()
            update, self._outgoing = self._outgoing, Update()
            if not update:
                continue
            try:
                await self._manager.update.remote(self._id, update)
            except ray.exceptions.RayError as error:
                self._fail(ResourceError(f"the resource manager is gone ({type(error).__name__})"))
                return

    async def _listen(self) -> None:
        while True:
            try:
                news: News = await self._manager.news.remote(self._id)
            except ray.exceptions.RayError as error:
                self._fail(ResourceError(f"the resource manager is gone ({type(error).__name__})"))
                return
            self._hosts.update(news.hosts)
            for answer in news.answers:
                self._take(answer)

    def _take(self, answer: Grant | Reject) -> None:
        ticket = answer.lease.ticket if isinstance(answer, Grant) else answer.ticket
        waiting = self._waiting.pop(ticket, None)
        if isinstance(answer, Reject):
            self._held.discard(ticket)
        if waiting is None or waiting.done():
            return  # its release is on the way already
        if isinstance(answer, Grant):
            waiting.set_result(answer)
        elif answer.error == "saturated":
            waiting.set_exception(PoolSaturated(answer.message, answer.waiting, answer.retry_after))
        else:
            waiting.set_exception(StartFailed(answer.message))

    def _show_life(self) -> None:
        while not self._ended.wait(_HEARTBEAT):
            try:
                self._manager.seen.remote(self._id)
            except Exception:
                return  # Ray is shutting down

    def _fail(self, error: ResourceError) -> None:
        self._failure = error
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._waiting.clear()


def _cause(error: BaseException) -> BaseException:
    """What was raised where it was raised, behind one task error for each process that it crossed."""
    while isinstance(error, ray.exceptions.RayTaskError) and error.cause is not None:
        error = error.cause
    return error
