"""Resources without Ray: pools in this process, for environments that are played by one learner."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from agentfly.resources import Resource, ResourceSpec
from agentfly.resources.faults import FaultSink, ignore_faults


class LocalProxy:
    """A resource whose plain methods are awaited like those of a leased one."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._resource, name)
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) or not callable(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return call


class LocalLease:
    """What `ResourceClient.acquire` gives, as far as a context needs it."""

    waited = 0.0
    lost = False

    def __init__(self, pools: LocalPools, spec: ResourceSpec[Any], resource: Resource, share: str) -> None:
        self._pools = pools
        self._spec = spec
        self.resource = resource
        self._share = share
        self.holders = 1

    def seen_by(self, faults: FaultSink, waits: AbstractContextManager[Any] | None = None) -> Any:
        """The resource."""
        return LocalProxy(self.resource)

    def release(self) -> None:
        """Give it back; it is reset before the next lease."""
        self.holders -= 1
        if self.holders == 0:
            self._pools.give_back(self._spec, self.resource, self._share)


class LocalPools:
    """As many resources of each spec as are wanted at once. In place of a `ResourceClient`."""

    def __init__(self) -> None:
        self._all: list[Resource] = []
        self._free: dict[str, list[Resource]] = {}
        self._named: dict[tuple[str, str], asyncio.Task[LocalLease]] = {}
        self._resets: set[asyncio.Task[None]] = set()

    async def acquire(
        self,
        spec: ResourceSpec[Any],
        *,
        priority: float = 0.0,
        holder: str = "",
        claims: Sequence[ResourceSpec[Any]] = (),
        share: str = "",
        setup: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        faults: FaultSink = ignore_faults,
    ) -> LocalLease:
        """A lease; one of a shared spec, or of one share, is the same for all who ask."""
        share = share or ("shared" if spec.shared else "")
        if not share:
            return await self._lease(spec, setup, "")
        task = self._named.get((spec.key, share))
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.create_task(self._lease(spec, setup, share))
            self._named[spec.key, share] = task
            return await asyncio.shield(task)
        lease = await asyncio.shield(task)
        lease.holders += 1
        return lease

    def give_back(self, spec: ResourceSpec[Any], resource: Resource, share: str) -> None:
        """Reset a resource and put it with the free ones; a shared one stays as it is."""
        if spec.shared:
            return
        self._named.pop((spec.key, share), None)
        task = asyncio.get_running_loop().create_task(self._reset(spec, resource))
        self._resets.add(task)
        task.add_done_callback(self._resets.discard)

    async def close(self) -> None:
        """Stop everything."""
        await asyncio.gather(*self._resets, return_exceptions=True)
        await asyncio.gather(*(resource.stop() for resource in self._all), return_exceptions=True)
        self._all.clear()
        self._free.clear()
        self._named.clear()

    async def _lease(self, spec: ResourceSpec[Any], setup: Mapping[str, Any] | None, share: str) -> LocalLease:
        free = self._free.get(spec.key)
        resource = free.pop() if free else await self._start(spec)
        if setup is not None or type(resource).setup is not Resource.setup:
            try:
                await asyncio.wait_for(resource.setup(**(setup or {})), spec.setup_timeout)
            except BaseException:
                self.give_back(spec, resource, share)
                raise
        return LocalLease(self, spec, resource, share)

    async def _start(self, spec: ResourceSpec[Any]) -> Resource:
        resource = spec.make()
        await asyncio.wait_for(resource.start(), spec.start_timeout)
        self._all.append(resource)
        return resource

    async def _reset(self, spec: ResourceSpec[Any], resource: Resource) -> None:
        try:
            await asyncio.wait_for(resource.reset(), spec.reset_timeout)
        except Exception:  # whatever it is, such a resource isn't lent again
            self._all.remove(resource)
            await resource.stop()
        else:
            self._free.setdefault(spec.key, []).append(resource)
