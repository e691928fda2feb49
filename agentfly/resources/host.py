"""The host: a Ray actor that carries the slots of a pool and runs the calls of their lessees."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import ray
import ray.cloudpickle

from agentfly.errors import ResourceError, StaleLease
from agentfly.resources.resource import Resource
from agentfly.resources.spec import ResourceSpec

_log = logging.getLogger(__name__)
_CANCEL_GRACE = 5.0


@dataclass(frozen=True)
class Raised:
    """A call's exception on its way back, with the traceback that it had in the host."""

    error: Exception
    remote_traceback: str


@dataclass
class _HostSlot:
    resource: Resource
    epoch: int = 1
    calls: set[asyncio.Task[Any]] = field(default_factory=set)


class ResourceHost:
    """Runs the resources of one host process.

    Args:
        spec: of the pool.
        slots: how many slots; of a shared resource these are permits on the one there is.
        manager: the host ends itself when the manager is gone for good; None is for tests without one.
    """

    def __init__(self, spec: ResourceSpec[Any], slots: int, manager: Any | None = None) -> None:
        self._spec = spec
        self._manager = manager
        self._threads = ThreadPoolExecutor(max_workers=max(4, slots), thread_name_prefix=spec.name)
        self._slots: list[_HostSlot] = []
        self._count = slots
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Construct and start every resource; on an error those that had started are stopped again."""
        made = [self._make() for _ in range(1 if self._spec.shared else self._count)]
        starts = [asyncio.wait_for(resource.start(), self._spec.start_timeout) for resource in made]
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        failure = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
        if failure is not None:
            await asyncio.gather(*(self._stop_quietly(resource) for resource in made))
            raise ResourceError(_reason(failure, "start", self._spec.start_timeout)) from failure
        self._slots = [_HostSlot(made[0] if self._spec.shared else made[index]) for index in range(self._count)]
        if self._manager is not None:
            self._watch = asyncio.create_task(self._end_with_the_manager(self._manager))

    async def call(
        self, slot: int, epoch: int, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any | Raised:
        """Run one method of a leased resource; its exception comes back as `Raised`."""
        try:
            place = self._enter(slot, epoch)
            task = asyncio.ensure_future(self._invoke(place.resource, method, args, kwargs))
            place.calls.add(task)
            task.add_done_callback(place.calls.discard)
            try:
                return await task
            except asyncio.CancelledError:
                if task.cancelled() and place.epoch != epoch:
                    raise StaleLease(f"the lease of {self._spec.name!r} ended during {method}()") from None
                task.cancel()
                raise
        except Exception as error:
            return raised(error)

    async def stream(
        self, slot: int, epoch: int, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AsyncIterator[Any | Raised]:
        """Run an asynchronous generator of a leased resource; its exception comes as the last item."""
        try:
            place = self._enter(slot, epoch)
            async for item in getattr(place.resource, method)(*args, **kwargs):
                if place.epoch != epoch:
                    raise StaleLease(f"the lease of {self._spec.name!r} ended during {method}()")
                yield item
        except Exception as error:
            yield raised(error)

    async def broadcast(self, method: str, args: Sequence[Any]) -> list[Any]:
        """Run a method on every resource here.

        Raises:
            Exception: the first that a resource raised.
        """
        resources = {id(place.resource): place.resource for place in self._slots}
        return list(
            await asyncio.gather(*(self._invoke(resource, method, args, {}) for resource in resources.values()))
        )

    async def reset(self, slot: int, epoch: int, renew: bool) -> str | None:
        """End the old lease's calls and make the slot clean, or replace its resource; None, or what failed."""
        place = self._slots[slot]
        place.epoch = epoch
        await _end(place.calls)
        try:
            if renew:
                await self._renew(place)
                return None
            await asyncio.wait_for(place.resource.reset(), self._spec.reset_timeout)
            healthy = await asyncio.wait_for(place.resource.healthy(), self._spec.reset_timeout)
            return None if healthy else "it says that it is not healthy"
        except Exception as error:
            return _reason(error, "reset", self._spec.reset_timeout)

    async def stop(self) -> None:
        """Stop every resource; a failing one doesn't keep the others."""
        if self._watch is not None:
            self._watch.cancel()
        for place in self._slots:
            await _end(place.calls)
        resources = {id(place.resource): place.resource for place in self._slots}
        self._slots = []
        await asyncio.gather(*(self._stop_quietly(resource) for resource in resources.values()))

    async def alive(self) -> None:
        """Never returns: whoever waits here learns of the host's death at once."""
        await asyncio.Event().wait()

    def _make(self) -> Resource:
        made: Resource = self._spec.resource(**self._spec.args)
        return made

    async def _renew(self, place: _HostSlot) -> None:
        await self._stop_quietly(place.resource)
        place.resource = self._make()
        await asyncio.wait_for(place.resource.start(), self._spec.start_timeout)

    def _enter(self, slot: int, epoch: int) -> _HostSlot:
        place = self._slots[slot] if slot < len(self._slots) else None
        if place is None or epoch < place.epoch:
            raise StaleLease(f"the lease of {self._spec.name!r} has ended: acquire it again")
        # A shared resource is not reset between leases, so the first call of a new lease brings the news.
        place.epoch = epoch
        return place

    async def _invoke(self, resource: Resource, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        function: Callable[..., Any] = getattr(resource, method)
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(function, *args, **kwargs))

    async def _stop_quietly(self, resource: Resource) -> None:
        try:
            await asyncio.wait_for(resource.stop(), self._spec.reset_timeout)
        except Exception as error:
            _log.warning("%s: %s", self._spec.name, _reason(error, "stop", self._spec.reset_timeout))

    async def _end_with_the_manager(self, manager: Any) -> None:
        """Hosts outlive a manager that is restarted, never one that is gone: then the job is over."""
        while True:
            try:
                await manager.alive.remote()
            except ray.exceptions.ActorDiedError:
                break
            except ray.exceptions.RayError:
                await asyncio.sleep(0.2)  # being restarted
        self._watch = None
        await self.stop()
        ray.actor.exit_actor()


def raised(error: Exception) -> Raised:
    """The exception in a form that surely can be sent."""
    text = "".join(traceback.format_exception(error))
    try:
        ray.cloudpickle.loads(ray.cloudpickle.dumps(error))
    except Exception:
        error = ResourceError(f"{type(error).__name__}: {error}")
    return Raised(error, text)


async def _end(calls: set[asyncio.Task[Any]]) -> None:
    running = list(calls)
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=_CANCEL_GRACE)


def _reason(error: BaseException, what: str, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"{what} took longer than {timeout:g} s"
    return f"{what} raised {type(error).__name__}: {error}"
