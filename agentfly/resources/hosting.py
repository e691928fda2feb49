"""The manager's hands: starts, resets, checks and stops the host actors as the core says."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from agentfly.resources.card import SpecCard
from agentfly.resources.core.scheduler import Scheduler
from agentfly.resources.core.types import Action, CheckHost, ResetSlot, StartHost
from agentfly.resources.event_log import EventLog
from agentfly.resources.host import HostReport, ResourceHost
from agentfly.resources.messages import Replay
from agentfly.resources.tasks import TaskSet, within

NAMESPACE = "agentfly"
_log = logging.getLogger(__name__)
_PING_TIMEOUT = 10.0
_REPORT_TIMEOUT = 30.0


@dataclass(eq=False)
class _Host:
    id: str
    pool: str
    handle: Any
    spec: SpecCard
    placed: bool = False
    ready: bool = False
    lost: bool = False
    end: asyncio.Task[None] | None = None

    @property
    def leaving(self) -> bool:
        """Whether it is dead or being stopped."""
        return self.lost or self.end is not None


class HostActors:
    """All hosts of a job.

    Args:
        job: begins their actors' names.
        manager: name of the manager's own actor.
        core: is told what became of them.
        carry_out: for the actions that follow from that.
        log: gets how long starts and resets take.
    """

    def __init__(
        self, job: str, manager: str, core: Scheduler, carry_out: Callable[[list[Action]], None], log: EventLog
    ) -> None:
        self._job = job
        # By name, so that hosts don't keep a manager alive that everybody else has let go.
        self._manager_name = manager
        self._manager: Any = None
        self._core = core
        self._carry_out = carry_out
        self._log = log
        self._hosts: dict[str, _Host] = {}
        self._delayed: set[str] = set()  # asked for, not yet made
        self._replays: dict[tuple[str, str], Replay] = {}
        self._tasks = TaskSet()
        self._closed = False

    def handle(self, host_id: str) -> Any:
        """A host's actor handle; None when it is gone."""
        host = self._hosts.get(host_id)
        return None if host is None else host.handle

    # Actions

    def start(self, action: StartHost, spec: SpecCard) -> None:
        """Begin to start a host."""
        self._delayed.add(action.host)
        self._tasks.spawn(self._start(action, spec))

    def reset(self, action: ResetSlot) -> None:
        """Begin to make a slot clean."""
        self._tasks.spawn(self._reset(action))

    def check(self, action: CheckHost) -> None:
        """Begin to ask resources how they are."""
        self._tasks.spawn(self._check(action))

    def stop(self, host_id: str) -> None:
        """Begin to stop a host."""
        self._tasks.spawn(self._stop(host_id))

    def suspect(self, host_id: str) -> None:
        """Somebody's call failed as if the host were dead: look at once."""
        if (host := self._hosts.get(host_id)) is not None and not host.leaving:
            self._tasks.spawn(self._look(host))

    def attend(self, host_id: str) -> None:
        """Begin to watch a host that was found."""
        if (host := self._hosts.get(host_id)) is not None:
            self._tasks.spawn(self._watch(host))

    def expect(self, host_id: str, client: str) -> None:
        """A client is about to be granted its first lease in a host."""
        if (host := self._hosts.get(host_id)) is not None:
            host.handle.expect.remote(client)

    # Broadcasts

    async def broadcast(self, pool: str, method: str, arguments: Any) -> list[Any]:
        """Run a method on every resource of a pool.

        Raises:
            Exception: the first that a resource raised.
        """
        hosts = [host for host in self._hosts.values() if host.pool == pool and host.ready]
        results = await asyncio.gather(*(host.handle.broadcast.remote(method, arguments) for host in hosts))
        return [result for host_results in results for result in host_results]

    def keep(self, replay: Replay) -> None:
        """Have hosts that start later run it too, before they serve."""
        known = self._replays.get((replay.pool, replay.method))
        if known is None or known.time <= replay.time:
            self._replays[replay.pool, replay.method] = replay

    # The whole

    async def find(self) -> list[tuple[str, HostReport]]:
        """Hosts that an earlier manager has left, and their reports; those that hadn't started are killed."""
        actors = await asyncio.to_thread(ray.util.list_named_actors, all_namespaces=True)
        prefix = f"{self._job}/hosts/"
        names = [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]
        found = await asyncio.gather(*(self._ask(name) for name in names if name.startswith(prefix)))
        return [entry for entry in found if entry is not None]

    async def close(self) -> None:
        """Stop all hosts; returns when they are gone."""
        self._closed = True
        await asyncio.gather(*(self._stop(host_id) for host_id in list(self._hosts)))
        self._tasks.cancel()

    # Inside

    async def _start(self, action: StartHost, spec: SpecCard) -> None:
        await asyncio.sleep(action.delay)
        if self._closed or action.host not in self._delayed:
            return
        self._delayed.discard(action.host)
        if self._manager is None:
            self._manager = ray.get_actor(self._manager_name, NAMESPACE)
        options = dict(spec.options)
        # Detached, so that a restarted manager finds them alive; they end themselves when the job is over.
        name = f"{self._job}/hosts/{spec.name}/{action.host}"
        options.update(name=name, namespace=NAMESPACE, lifetime="detached", max_concurrency=100_000)
        began = time.monotonic()
        try:
            handle = ray.remote(ResourceHost).options(**options).remote(spec, action.slots, self._manager)
        except Exception as error:  # wrong options of Ray's
            self._failed(action, f"Ray refuses it: {error}")
            return
        host = self._hosts[action.host] = _Host(action.host, action.pool, handle, spec)
        try:
            await within(spec.placement_timeout, handle.ping.remote())
            host.placed = True
            await handle.start.remote()
            await self._catch_up(host)
        except TimeoutError:
            wants = {name: value for name, value in spec.options.items() if value}
            await self._stop(action.host)
            self._failed(action, f"Ray found no place for {wants} within {spec.placement_timeout:g} s")
        except Exception as error:
            await self._stop(action.host)
            self._failed(action, str(error.cause) if isinstance(error, ray.exceptions.RayTaskError) else str(error))
        else:
            host.ready = True
            now = time.monotonic()
            self._log.host_started(spec.name, action.host, action.slots, now - began)
            self._carry_out(self._core.host_ready(action.pool, action.host, now))
            await self._watch(host)

    def _failed(self, action: StartHost, reason: str) -> None:
        if not self._closed:
            self._carry_out(self._core.host_failed(action.pool, action.host, reason, time.monotonic()))

    async def _catch_up(self, host: _Host) -> None:
        """Run what was broadcast for replay, until nothing newer has come meanwhile."""
        done: dict[str, Replay] = {}
        while missing := [
            replay
            for (pool, method), replay in self._replays.items()
            if pool == host.pool and done.get(method) is not replay
        ]:
            for replay in missing:
                await host.handle.broadcast.remote(replay.method, replay.arguments)
                done[replay.method] = replay

    async def _watch(self, host: _Host) -> None:
        """Learn of the host's death at once."""
        while not host.leaving:
            try:
                await host.handle.alive.remote()
            except ray.exceptions.RayError as error:
                if not host.leaving and not await self._answers(host, error):
                    self._lost(host)

    async def _look(self, host: _Host) -> None:
        try:
            await within(_PING_TIMEOUT, host.handle.ping.remote())
        except ray.exceptions.RayError as error:
            if not await self._answers(host, error):
                self._lost(host)
        except TimeoutError:
            pass  # busy, not dead; the health check has the patience to tell

    async def _answers(self, host: _Host, error: ray.exceptions.RayError) -> bool:
        """After a failed call: whether only the connection was lost."""
        if isinstance(error, ray.exceptions.ActorDiedError):
            return False
        try:
            await within(_PING_TIMEOUT, host.handle.ping.remote())
        except (ray.exceptions.RayError, TimeoutError):
            return False
        return True

    def _lost(self, host: _Host) -> None:
        if host.leaving:
            return
        host.lost = True
        del self._hosts[host.id]
        _log.warning("host %s of pool %s died", host.id, host.spec.name)
        ray.kill(host.handle)  # if it lives on, out of reach
        self._carry_out(self._core.host_died(host.pool, host.id, time.monotonic()))

    async def _reset(self, action: ResetSlot) -> None:
        host = self._hosts.get(action.host)
        if host is None:
            return
        began = time.monotonic()
        try:
            failure = await host.handle.reset.remote(action.slot, action.epoch, action.renew)
        except ray.exceptions.RayError as error:
            if not await self._answers(host, error):
                return  # its watch says so
            failure = f"the connection was lost ({type(error).__name__})"
        if host.leaving:
            return
        if failure is not None:
            _log.warning("pool %s: %s", host.spec.name, failure)
        ok = failure is None
        now = time.monotonic()
        name, renewed = host.spec.name, action.renew
        self._log.slot_reset(name, host.id, action.slot, now - began, renewed=renewed, ok=ok)
        self._carry_out(self._core.slot_reset(action.pool, action.host, action.slot, ok, failure or "", now))

    async def _check(self, action: CheckHost) -> None:
        host = self._hosts.get(action.host)
        if host is None or host.leaving:
            return
        try:
            unwell = await within(host.spec.health_timeout, host.handle.check.remote(action.slots))
        except TimeoutError:
            _log.warning("host %s of pool %s doesn't answer", host.id, host.spec.name)
            self._lost(host)
            return
        except ray.exceptions.RayError:
            return  # its watch sees that
        for slot, epoch in unwell:
            _log.warning("pool %s: a resource says that it isn't healthy", host.spec.name)
            self._carry_out(self._core.unhealthy(host.pool, host.id, slot, epoch, time.monotonic()))

    async def _stop(self, host_id: str) -> None:
        """Stop a host; returns when it is gone."""
        host = self._hosts.get(host_id)
        if host is None:
            self._delayed.discard(host_id)
            return
        if host.end is None:
            host.end = asyncio.create_task(self._end(host))
        await asyncio.shield(host.end)

    async def _end(self, host: _Host) -> None:
        """Let its resources end in order; then, or when that takes too long, kill it."""
        try:
            if host.placed:
                await within(host.spec.reset_timeout + _PING_TIMEOUT, host.handle.stop.remote())
        except (TimeoutError, ray.exceptions.RayError) as error:
            _log.info("host %s did not stop in order: %s", host.id, type(error).__name__)
        ray.kill(host.handle)
        del self._hosts[host.id]
        try:
            await within(_PING_TIMEOUT, host.handle.ping.remote())
        except (TimeoutError, ray.exceptions.RayError):
            pass  # it is gone

    async def _ask(self, name: str) -> tuple[str, HostReport] | None:
        host_id = name.rpartition("/")[2]
        try:
            handle = await asyncio.to_thread(ray.get_actor, name, NAMESPACE)
            report: HostReport = await within(_REPORT_TIMEOUT, handle.report.remote())
        except (ValueError, ray.exceptions.RayError):
            return None  # it is dead
        except TimeoutError:  # never placed, or it hangs
            _log.warning("host %s doesn't report and is given up", name)
            ray.kill(handle)
            return None
        if not report.epochs:  # it had not started yet
            ray.kill(handle)
            return None
        self._hosts[host_id] = _Host(host_id, report.spec.key, handle, report.spec, placed=True, ready=True)
        return host_id, report
