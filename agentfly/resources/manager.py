"""The resource manager: the central actor that carries events into the scheduling core and actions out of it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import ray

from agentfly.errors import ConfigError
from agentfly.resources.core.scheduler import Scheduler
from agentfly.resources.core.types import (
    Action,
    Grant,
    PoolLimits,
    PoolStats,
    Reject,
    Request,
    ResetSlot,
    StartHost,
    StopHost,
)
from agentfly.resources.host import ResourceHost
from agentfly.resources.messages import News, Update
from agentfly.resources.spec import ResourceSpec

_log = logging.getLogger(__name__)
_TICK = 0.5
_STOP_TIMEOUT = 10.0
_NAMESPACE = "agentfly"

ManagerHandle = Any
"""The actor handle of a `ResourceManager`."""


class ResourceManager:
    """One for each job. It decides nothing itself: that is the core's work.

    Args:
        job: names its hosts in Ray's dashboard.
        client_ttl: seconds of silence after which a client's leases come home.
    """

    def __init__(self, job: str, client_ttl: float) -> None:
        self._job = job
        self._core = Scheduler(client_ttl)
        self._specs: dict[str, ResourceSpec[Any]] = {}
        self._hosts: dict[str, Any] = {}
        self._ready: dict[str, str] = {}  # host id -> pool key
        self._replays: dict[str, dict[str, Any]] = {}  # pool key -> method -> reference of its arguments
        self._answers: dict[str, list[Grant | Reject]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._stopped = False

    # Clients

    async def update(self, client: str, update: Update) -> None:
        """Take in what a client has to say; answers come by `news`."""
        now = time.monotonic()
        self._ensure_ticking()
        self._core.seen(client, now)
        for key, spec in update.specs.items():
            self._add_pool(key, spec, now)
        for pool, host in update.dead_hosts:
            self._host_is_gone(pool, host)
        for ticket in update.releases:
            self._carry_out(self._core.release(client, ticket, now))
        for ticket, key, priority in update.acquires:
            self._carry_out(self._core.acquire(Request(ticket, client, key, priority), now))

    async def news(self, client: str) -> News:
        """Wait until there is something for the client: one call that waits for each process, not one a rollout."""
        event = self._news.setdefault(client, asyncio.Event())
        await event.wait()
        event.clear()
        answers = self._answers.pop(client, [])
        granted = {answer.lease.host for answer in answers if isinstance(answer, Grant)}
        return News(answers, {host: self._hosts[host] for host in granted if host in self._hosts})

    async def seen(self, client: str) -> None:
        """A sign of life."""
        self._core.seen(client, time.monotonic())

    async def goodbye(self, client: str) -> None:
        """The client ends: all it holds comes home."""
        self._carry_out(self._core.client_gone(client, time.monotonic()))
        self._answers.pop(client, None)
        if (event := self._news.pop(client, None)) is not None:
            event.set()

    async def alive(self) -> None:
        """Never returns; hosts wait here to learn of the manager's end."""
        await asyncio.Event().wait()

    # Pools

    async def broadcast(
        self, key: str, spec: ResourceSpec[Any], method: str, arguments: list[Any], replay: bool
    ) -> list[Any]:
        """Run a method on every resource of a pool.

        Args:
            arguments: one reference to the tuple of arguments (in a list, so that Ray doesn't fetch it here).
            replay: hosts that start later run it too, before they serve.
        """
        self._ensure_ticking()
        self._add_pool(key, spec, time.monotonic())
        if replay:
            self._replays.setdefault(key, {})[method] = arguments[0]
        hosts = [self._hosts[host] for host, pool in self._ready.items() if pool == key]
        results = await asyncio.gather(*(host.broadcast.remote(method, arguments[0]) for host in hosts))
        return [result for host_results in results for result in host_results]

    async def stats(self) -> list[PoolStats]:
        """Every pool at this moment."""
        return list(self._core.stats())

    async def resize(self, name: str, min_size: int, max_size: int) -> None:
        """Change the bounds of the pools of a name.

        Raises:
            ConfigError: there is no such pool, or the bounds are wrong.
        """
        keys = [key for key, spec in self._specs.items() if spec.name == name]
        if not keys:
            names = ", ".join(sorted({spec.name for spec in self._specs.values()})) or "none"
            raise ConfigError(f"there is no pool {name!r}; the pools are: {names}")
        if not 0 <= min_size <= max_size or max_size < 1:
            raise ConfigError(f"a pool needs 0 <= min <= max and max >= 1, got {min_size} and {max_size}")
        for key in keys:
            self._carry_out(self._core.resize(key, min_size, max_size, time.monotonic()))

    async def stop(self) -> None:
        """End every host, and return when they have ended."""
        self._stopped = True
        if self._ticking is not None:
            self._ticking.cancel()
        self._carry_out([action for action in self._core.stop(time.monotonic()) if isinstance(action, Reject)])
        await asyncio.gather(*(self._stop_host(host) for host in list(self._hosts)))

    # Actions of the core

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Grant(lease=lease):
                    self._tell(lease.client, action)
                case Reject(client=client):
                    self._tell(client, action)
                case StartHost():
                    self._spawn(self._start_host(action))
                case ResetSlot():
                    self._spawn(self._reset_slot(action))
                case StopHost():
                    self._spawn(self._stop_host(action.host))
                case _:
                    pass

    def _tell(self, client: str, answer: Grant | Reject) -> None:
        self._answers.setdefault(client, []).append(answer)
        self._news.setdefault(client, asyncio.Event()).set()

    async def _start_host(self, action: StartHost) -> None:
        spec = self._specs[action.pool]
        await asyncio.sleep(action.delay)
        if self._stopped:
            return
        me = ray.get_runtime_context().current_actor
        options = spec.host_options()
        # Detached, so that a restarted manager finds them alive; they end themselves when the job is over.
        name = f"{self._job}/{spec.name}/{action.host}"
        options.update(name=name, namespace=_NAMESPACE, lifetime="detached", max_concurrency=100_000)
        host = None
        try:
            host = ray.remote(ResourceHost).options(**options).remote(spec, action.slots, me)
            self._hosts[action.host] = host
            await host.start.remote()
            await self._catch_up(action.pool, host)
        except Exception as error:
            if host is not None:
                await self._stop_host(action.host)
            reason = str(error.cause) if isinstance(error, ray.exceptions.RayTaskError) else str(error)
            self._carry_out(self._core.host_failed(action.pool, action.host, reason, time.monotonic()))
            return
        self._ready[action.host] = action.pool
        self._carry_out(self._core.host_ready(action.pool, action.host, time.monotonic()))
        self._spawn(self._watch_host(action.pool, action.host, host))

    async def _catch_up(self, pool: str, host: Any) -> None:
        """Run what was broadcast for replay, until nothing newer has come meanwhile."""
        done: dict[str, Any] = {}
        while (latest := dict(self._replays.get(pool, {}))) != done:
            for method, arguments in latest.items():
                if done.get(method) is not arguments:
                    await host.broadcast.remote(method, arguments)
            done = latest

    async def _watch_host(self, pool: str, host_id: str, host: Any) -> None:
        try:
            await host.alive.remote()
        except ray.exceptions.RayError:
            self._host_is_gone(pool, host_id)

    def _host_is_gone(self, pool: str, host: str) -> None:
        self._ready.pop(host, None)
        if self._hosts.pop(host, None) is not None and not self._stopped:
            _log.warning("a host of pool %s died", self._specs[pool].name)
            self._carry_out(self._core.host_died(pool, host, time.monotonic()))

    async def _reset_slot(self, action: ResetSlot) -> None:
        host = self._hosts.get(action.host)
        if host is None:
            return
        try:
            failure = await host.reset.remote(action.slot, action.epoch, action.renew)
        except ray.exceptions.RayError:
            return  # the host died; its watch says so
        if failure is not None:
            _log.warning("pool %s: %s", self._specs[action.pool].name, failure)
        now = time.monotonic()
        actions = self._core.slot_reset(action.pool, action.host, action.slot, failure is None, failure or "", now)
        self._carry_out(actions)

    async def _stop_host(self, host_id: str) -> None:
        """Let its resources end in order; then, or when that takes too long, kill it."""
        self._ready.pop(host_id, None)
        host = self._hosts.pop(host_id, None)
        if host is None:
            return
        try:
            await asyncio.wait_for(asyncio.ensure_future(host.stop.remote()), _STOP_TIMEOUT)
        except (TimeoutError, ray.exceptions.RayError) as error:
            _log.info("host %s did not stop in order: %s", host_id, type(error).__name__)
        ray.kill(host)

    # Housekeeping

    def _add_pool(self, key: str, spec: ResourceSpec[Any], now: float) -> None:
        if key in self._specs:
            return
        self._specs[key] = spec
        limits = PoolLimits(
            name=spec.name,
            slots=spec.slots,
            shared=spec.shared,
            min_size=spec.min_size,
            max_size=spec.max_size,
            max_waiting=spec.max_waiting,
            max_uses=spec.max_uses,
            max_age=spec.max_age,
            idle_ttl=spec.idle_ttl,
            start_retries=spec.start_retries,
        )
        self._carry_out(self._core.add_pool(key, limits, now))

    def _ensure_ticking(self) -> None:
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._carry_out(self._core.tick(time.monotonic()))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def start_manager(job: str, *, client_ttl: float = 15.0) -> ManagerHandle:
    """Start a job's resource manager. Ray must be connected.

    Args:
        job: unique in the cluster.
        client_ttl: seconds of silence after which a client process counts as dead and its leases come home.
    """
    name = f"{job}/resource-manager"
    actor = ray.remote(ResourceManager)
    return actor.options(name=name, namespace=_NAMESPACE, num_cpus=0, max_concurrency=100_000).remote(job, client_ttl)


async def stop_manager(manager: ManagerHandle) -> None:
    """Stop every resource and host of the job, then the manager."""
    try:
        await manager.stop.remote()
    except ray.exceptions.RayActorError:
        return  # it is gone, and its hosts end by themselves
    ray.kill(manager)
