"""The resource manager: the central actor that carries events into the scheduling core and actions out of it."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from typing import Any
from uuid import uuid4

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from agentfly.errors import ConfigError
from agentfly.resources.card import SpecCard
from agentfly.resources.core.scheduler import Scheduler
from agentfly.resources.core.types import (
    Action,
    CheckHost,
    ClientGone,
    Grant,
    LeaseEnded,
    PoolStats,
    Reject,
    ResetSlot,
    StartHost,
    StopHost,
    pool_labels,
)
from agentfly.resources.event_log import EventLog
from agentfly.resources.hosting import NAMESPACE, HostActors
from agentfly.resources.mailbox import Mailbox
from agentfly.resources.messages import News, Replay, Standing, Update
from agentfly.resources.metrics import PoolMetrics

_log = logging.getLogger(__name__)
_TICK = 0.5
_METRICS_EVERY = 4  # ticks
_BEATS = 5  # signs of life that have to be missed before a client counts as dead

ManagerHandle = Any
"""The actor handle of a `ResourceManager`."""


class ResourceManager:
    """One for each job. It decides nothing itself: that is the core's work.

    It runs on one event loop with room for any number of calls at once, because clients and hosts wait in it: one
    call each, never one a rollout. (Concurrency groups of an asynchronous actor are threads of their own.)

    Args:
        job: begins its hosts' names; unique in the cluster.
        client_ttl: seconds of silence after which a client's leases come home.
        event_log: file, on this actor's node, that tells of every lease, start and reset; None writes none.
    """

    def __init__(self, job: str, client_ttl: float, event_log: str | None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray warns of a method that it uses itself
            restarted = ray.get_runtime_context().was_current_actor_reconstructed
        self._core = Scheduler(
            client_ttl,
            prefix=f"{uuid4().hex[:6]}-",
            recovering=restarted,
            epoch_floor=time.time_ns() // 1000 if restarted else 0,
        )
        self._client_ttl = client_ttl
        self._specs: dict[str, SpecCard] = {}
        self._log = EventLog(event_log)
        self._hosts = HostActors(job, _name(job), self._core, self._carry_out, self._log)
        self._boxes: dict[str, Mailbox] = {}
        self._metrics = PoolMetrics(job)
        self._found = asyncio.Event()
        self._awaited: set[str] | None = None
        self._all_back = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    # Clients

    async def rejoin(self, client: str, standing: Standing) -> News:
        """A client says all it has and wants: the first thing it does, and whenever the two have lost touch."""
        await self._begin()
        now = time.monotonic()
        if (old := self._boxes.get(client)) is not None:
            old.close()
        self._boxes[client] = box = Mailbox(self._hosts.handle)
        for spec in standing.specs.values():
            self._add_pool(spec, now)
        for replay in standing.replays:
            self._hosts.keep(replay)
        actions, lost = self._core.rejoin(client, standing.held, standing.waiting, now)
        self._carry_out(actions)
        self._has_spoken(client)
        news = box.collect()
        return News(news.answers, news.hosts, lost, heartbeat=self._client_ttl / _BEATS)

    async def update(self, client: str, update: Update) -> News:
        """Take in what a client has to say; returns the answers that there are at once."""
        box = self._boxes.get(client)
        if box is None:
            return News(unknown=True)
        now = time.monotonic()
        core = self._core
        core.seen(client, now)
        for spec in update.specs.values():
            self._add_pool(spec, now)
        for _, host in update.suspects:
            self._hosts.suspect(host)
        for ticket in update.releases:
            self._carry_out(core.release(client, ticket, now))
        for request in update.acquires.values():
            self._carry_out(core.acquire(request, now))
        return box.collect()

    async def news(self, client: str) -> News:
        """Wait until there is something for the client: one call that waits for each process, not one a rollout."""
        box = self._boxes.get(client)
        return News(unknown=True) if box is None else await box.wait()

    async def seen(self, client: str) -> None:
        """A sign of life."""
        if client in self._boxes:
            self._core.seen(client, time.monotonic())

    async def goodbye(self, client: str) -> None:
        """The client ends: all it holds comes home."""
        self._carry_out(self._core.client_gone(client, time.monotonic(), "released"))
        self._has_spoken(client)

    async def alive(self) -> None:
        """Never returns; hosts wait here to learn of the manager's end."""
        await asyncio.Event().wait()

    # Pools

    async def broadcast(self, spec: SpecCard, method: str, arguments: list[Any], replay: Replay | None) -> list[Any]:
        """Run a method on every resource of a pool.

        Args:
            arguments: one reference to the tuple of arguments (in a list, so that Ray doesn't fetch it here).
            replay: for hosts that start later, before they serve; None for a call that concerns only the present.
        """
        await self._begin()
        self._add_pool(spec, time.monotonic())
        if replay is not None:
            self._hosts.keep(replay)
        return await self._hosts.broadcast(spec.key, method, arguments[0])

    async def stats(self) -> list[PoolStats]:
        """Every pool at this moment."""
        return self._core.stats()

    async def resize(self, pool: str, min_size: int | None, max_size: int) -> list[PoolStats]:
        """Change the bounds of a pool, or of all pools of a name. A maximum of 0 drains them: leases end in their
        time, no new ones are granted, requests wait until the pool is resized again.

        Args:
            pool: a name, or the label of one of several that have it.
            min_size: None takes the spec's own, as far as the maximum allows.

        Returns:
            The pools that were resized.

        Raises:
            ConfigError: there is no such pool, or the bounds are wrong.
        """
        pools = self._core.stats()
        labels = pool_labels(pools)
        keys = [stats.key for stats, label in zip(pools, labels, strict=True) if pool in (stats.name, label)]
        if not keys:
            raise ConfigError(f"there is no pool {pool!r}; the pools are: {', '.join(sorted(labels)) or 'none'}")
        for key in keys:
            lowest = min(self._specs[key].limits.min_size, max_size) if min_size is None else min_size
            if not 0 <= lowest <= max_size:
                raise ConfigError(f"a pool needs 0 <= min <= max, got {lowest} and {max_size}")
            self._carry_out(self._core.resize(key, lowest, max_size, time.monotonic()))
        return [stats for stats in self._core.stats() if stats.key in keys]

    async def stop(self) -> None:
        """End every host, and return when they have ended."""
        await self._begin()  # a manager that was restarted has hosts to find first
        if self._life is not None:
            self._life.cancel()
        self._carry_out([action for action in self._core.stop(time.monotonic()) if not isinstance(action, StopHost)])
        await self._hosts.close()
        self._log.close()

    # Inside

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Grant(lease=lease):
                    if (box := self._boxes.get(lease.client)) is not None:
                        if lease.host not in box.hosts:
                            self._hosts.expect(lease.host, lease.client)
                        box.put(action)
                case Reject(client=client):
                    if (box := self._boxes.get(client)) is not None:
                        box.put(action)
                case LeaseEnded(lease=lease):
                    self._log.lease_ended(self._specs[lease.pool].name, action)
                case ResetSlot():
                    self._hosts.reset(action)
                case StartHost():
                    self._hosts.start(action, self._specs[action.pool])
                case StopHost():
                    self._hosts.stop(action.host)
                case CheckHost():
                    self._hosts.check(action)
                case ClientGone(client=client):
                    if (gone := self._boxes.pop(client, None)) is not None:
                        gone.close()

    def _add_pool(self, spec: SpecCard, now: float) -> None:
        if spec.key not in self._specs:
            self._specs[spec.key] = spec
            self._log.pool_made(spec.key, spec.limits)
            self._carry_out(self._core.add_pool(spec.key, spec.limits, now))

    async def _begin(self) -> None:
        """Start the actor's own work, which needs its event loop; after a restart, see what hosts there are."""
        if self._life is None:
            self._life = asyncio.create_task(self._live())
        await self._found.wait()

    async def _live(self) -> None:
        if self._core.recovering:
            await self._find_hosts()
        self._found.set()
        if self._core.recovering:
            await self._await_clients()
        for count in range(1 << 62):
            await asyncio.sleep(_TICK)
            try:
                self._tick(publish=count % _METRICS_EVERY == 0)
            except Exception:  # of one pool must not end the work for all
                _log.exception("a tick failed")

    def _tick(self, *, publish: bool) -> None:
        self._carry_out(self._core.tick(time.monotonic()))
        self._log.flush()
        if publish:
            self._metrics.publish(self._core.stats())

    async def _find_hosts(self) -> None:
        _log.warning("the manager has been restarted: asking hosts and clients what there is")
        reports = await self._hosts.find()
        now = time.monotonic()
        self._awaited = set()
        for host_id, report in reports:
            self._awaited |= report.clients
            self._add_pool(report.spec, now)
            self._core.host_found(report.spec.key, host_id, report.epochs, now)
            self._hosts.attend(host_id)
        if not self._awaited:
            self._all_back.set()

    def _has_spoken(self, client: str) -> None:
        if self._awaited is not None:
            self._awaited.discard(client)
            if not self._awaited:
                self._all_back.set()

    async def _await_clients(self) -> None:
        """Until all who may hold leases have said so, or have been silent for as long as only the dead are."""
        try:
            await asyncio.wait_for(self._all_back.wait(), self._client_ttl)
        except TimeoutError:
            pass
        self._awaited = None
        self._carry_out(self._core.recovered(time.monotonic()))


def start_manager(
    job: str, *, client_ttl: float = 15.0, event_log: str | None = None, join: bool = False
) -> ManagerHandle:
    """Start a job's resource manager. Ray must be connected.

    It ends with the process that started it, and its hosts after it.

    Args:
        job: unique in the cluster.
        client_ttl: seconds of silence after which a client process counts as dead and its leases come home.
        event_log: file that gets a line of JSON for every lease, start and reset (see `EventLog`), on the manager's
            node, which is the one of this process, unless that can't be.
        join: take the manager that another process of the job has started, if there is one.
    """
    actor = ray.remote(ResourceManager).options(
        name=_name(job),
        namespace=NAMESPACE,
        num_cpus=0,
        max_concurrency=100_000,
        max_restarts=-1,
        get_if_exists=join,
        # It ends with this process anyway, and its log is to be found here.
        scheduling_strategy=NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True),
    )
    return actor.remote(job, client_ttl, event_log)


def _name(job: str) -> str:
    return f"{job}/manager"


async def stop_manager(manager: ManagerHandle) -> None:
    """Stop every resource and host of the job, then the manager."""
    try:
        while True:
            try:
                await manager.stop.remote()
                break
            except ray.exceptions.ActorUnavailableError:
                await asyncio.sleep(0.2)  # being restarted
    except ray.exceptions.ActorDiedError:
        return  # it is gone, and its hosts end by themselves
    ray.kill(manager)
