"""The host: a Ray actor that carries the slots of a pool and runs the calls of their lessees."""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import ray
import ray.cloudpickle

from agentfly.errors import ResourceError, StaleLease
from agentfly.resources.card import SpecCard
from agentfly.resources.phases import Phase, in_phases
from agentfly.resources.place import Place, invoke
from agentfly.resources.resource import Resource

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Raised:
    """A call's exception on its way back, with the traceback that it had in the host."""

    error: Exception
    remote_traceback: str


@dataclass(frozen=True)
class HostReport:
    """What a host tells a manager that didn't start it.

    Attributes:
        epochs: of its slots, as far as their lessees' calls have told; empty before it has started.
        clients: that have been granted leases in it.
    """

    spec: SpecCard
    epochs: list[int]
    clients: set[str]


class ResourceHost:
    """Runs the resources of one host process.

    Args:
        card: of the pool's spec.
        slots: how many slots; of a shared resource these are permits on the one there is.
        manager: the host ends itself when the manager is gone for good; None is for tests without one.
    """

    def __init__(self, card: SpecCard, slots: int, manager: Any | None = None) -> None:
        self._card = card
        self._manager = manager
        self._threads = ThreadPoolExecutor(max_workers=max(4, slots), thread_name_prefix=card.name)
        self._places: list[Place] = []
        self._count = slots
        self._clients: set[str] = set()
        self._made: list[Resource] = []  # all that may have to be stopped
        self._starting: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Construct and start every resource; on an error all are stopped again."""
        if self._manager is not None and self._watch is None:
            self._watch = asyncio.create_task(self._end_with_the_manager(self._manager))
        try:
            self._spec = self._card.unpack()
            made = [self._make() for _ in range(1 if self._spec.shared else self._count)]
            starts = (asyncio.wait_for(resource.start(), self._spec.start_timeout) for resource in made)
            self._starting = [asyncio.create_task(start) for start in starts]
            outcomes = await asyncio.gather(*self._starting, return_exceptions=True)
            failure = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
        except Exception as error:
            failure = error
        if failure is not None:
            await self._stop_all()
            raise ResourceError(self._reason(failure, "start")) from failure
        resources = made * self._count if self._spec.shared else made
        self._places = [Place(self._card.name, resource, self._threads) for resource in resources]

    async def call(
        self, slot: int, epoch: int, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any | Raised:
        """Run one method of a leased resource; its exception comes back as `Raised`."""
        try:
            place = self._place(slot)
            if method != "setup":
                return await place.call(epoch, method, args, kwargs)
            await place.setup(epoch, kwargs)
            return None
        except Exception as error:
            return raised(error)

    async def stream(
        self, slot: int, epoch: int, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AsyncGenerator[Any | Raised]:
        """Run an asynchronous generator of a leased resource; its exception comes as the last item."""
        try:
            async for item in self._place(slot).stream(epoch, method, args, kwargs):
                yield item
        except Exception as error:
            yield raised(error)

    async def call_in_phases(
        self, slot: int, epoch: int, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AsyncIterator[Any | Raised | Phase]:
        """As `call`, for resources whose calls may queue: tells when they do; the result comes last."""

        async def once() -> AsyncGenerator[Any]:
            yield await self.call(slot, epoch, method, args, kwargs)

        async with aclosing(in_phases(once())) as items:
            async for item in items:
                yield item

    async def stream_in_phases(
        self, slot: int, epoch: int, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AsyncIterator[Any | Raised | Phase]:
        """As `stream`, telling too when the call queues in the resource."""
        async with aclosing(in_phases(self.stream(slot, epoch, method, args, kwargs))) as items:
            async for item in items:
                yield item

    async def broadcast(self, method: str, args: Sequence[Any]) -> list[Any]:
        """Run a method on every resource here.

        Raises:
            Exception: the first that a resource raised.
        """
        calls = (invoke(resource, method, args, {}, self._threads) for resource in self._resources())
        return list(await asyncio.gather(*calls))

    async def reset(self, slot: int, epoch: int, renew: bool) -> str | None:
        """End the old lease's calls and make the slot clean, or replace its resource; None, or what failed."""
        try:
            place = self._place(slot)
            await place.clean(epoch, lambda: self._renew(place) if renew else self._reset(place.resource))
        except Exception as error:
            return self._reason(error, "start" if renew else "reset")
        return None

    async def check(self, slots: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Ask the resources of these slots, by index and epoch, how they are; returns those that aren't well."""
        answers = await asyncio.gather(*(self._is_well(self._places[slot].resource) for slot, _ in slots))
        return [place for place, well in zip(slots, answers, strict=True) if not well]

    async def expect(self, client: str) -> None:
        """A client is granted leases here from now on: for a manager that has to ask who there is."""
        self._clients.add(client)

    async def report(self) -> HostReport:
        """What a new manager must know."""
        return HostReport(self._card, [place.epoch for place in self._places], self._clients)

    async def stop(self) -> None:
        """Stop every resource; a failing one doesn't keep the others."""
        if self._watch is not None:
            self._watch.cancel()
        for start in self._starting:
            start.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(place.close() for place in self._places))
        self._places = []
        await self._stop_all()

    async def ping(self) -> None:
        """Answers when the host has been placed, and as long as its event loop turns."""

    async def alive(self) -> None:
        """Never returns: whoever waits here learns of the host's death at once."""
        await asyncio.Event().wait()

    # Resources

    def _make(self) -> Resource:
        made = self._spec.make()
        self._made.append(made)
        return made

    def _resources(self) -> list[Resource]:
        return list({id(place.resource): place.resource for place in self._places}.values())

    async def _reset(self, resource: Resource) -> None:
        await asyncio.wait_for(resource.reset(), self._spec.reset_timeout)
        if not await asyncio.wait_for(resource.healthy(), self._spec.reset_timeout):
            raise ResourceError("it says that it isn't healthy")

    async def _renew(self, place: Place) -> None:
        if place.resource in self._made:
            self._made.remove(place.resource)
            await self._stop_quietly(place.resource)
        place.resource = self._make()
        await asyncio.wait_for(place.resource.start(), self._spec.start_timeout)

    async def _is_well(self, resource: Resource) -> bool:
        try:
            return await asyncio.wait_for(resource.healthy(), self._spec.reset_timeout)
        except Exception:
            return False

    async def _stop_all(self) -> None:
        made, self._made = self._made, []
        await asyncio.gather(*(self._stop_quietly(resource) for resource in made))

    async def _stop_quietly(self, resource: Resource) -> None:
        try:
            await asyncio.wait_for(resource.stop(), self._spec.reset_timeout)
        except Exception as error:
            _log.warning("%s: %s", self._card.name, self._reason(error, "stop"))

    def _place(self, slot: int) -> Place:
        if slot >= len(self._places):
            raise StaleLease(f"the host of {self._card.name!r} has stopped")
        return self._places[slot]

    def _reason(self, error: BaseException, what: str) -> str:
        if isinstance(error, TimeoutError):
            limit = self._spec.start_timeout if what == "start" else self._spec.reset_timeout
            return f"{what} took longer than {limit:g} s"
        return f"{what} raised {type(error).__name__}: {error}"

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
        os._exit(0)  # nobody is left who could kill this actor


def raised(error: Exception) -> Raised:
    """The exception in a form that surely can be sent."""
    text = "".join(traceback.format_exception(error))
    try:
        ray.cloudpickle.loads(ray.cloudpickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return Raised(error, text)
