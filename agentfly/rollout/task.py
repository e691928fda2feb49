"""The rollout layer's two pieces of Ray: the work queue as an actor, the worker as a streaming task."""

from __future__ import annotations

import asyncio
import math
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import ray

from agentfly.agent import Agent
from agentfly.models.spec import ModelSpec
from agentfly.resources import ManagerHandle, PoolStats, ResourceClient, ResourceSpec
from agentfly.rollout.admission import Admission, PoolView
from agentfly.rollout.queue import WorkQueue
from agentfly.rollout.request import RolloutOptions, RolloutRequest
from agentfly.rollout.trajectory import Trajectory
from agentfly.rollout.worker import RolloutWorker

_LOOK = 0.25


class WorkQueueActor:
    """Carries a `WorkQueue` between the runner and its workers; a worker waits here, never polls.

    Args:
        max_attempts: see `WorkQueue`.
        workers: among whom work is spread when little is let in.
        claims: pools that a rollout may claim, and the slots that each may have; empty lets all in.
        manager: of the pools.
    """

    def __init__(self, max_attempts: int, workers: int, claims: Mapping[str, int], manager: ManagerHandle) -> None:
        self._queue = WorkQueue(max_attempts)
        self._workers = workers
        self._manager = manager
        self._admission = Admission(claims)
        self._look: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._closed = asyncio.Event()
        self._dead: set[str] = set()

    async def add(self, requests: list[RolloutRequest]) -> None:
        """Append new work."""
        self._queue.add(requests)
        self._notify()

    async def take(self, worker: str, most: int) -> list[RolloutRequest] | None:
        """The oldest work, as soon as there is some; None once closed, and to a worker declared dead."""
        if self._admission.needed and self._look is None:
            self._look = asyncio.create_task(self._look_at_pools())
        while not self._closed.is_set() and worker not in self._dead:
            allowed = min(most, self._allowed())
            if self._queue.waiting and allowed:
                return self._queue.take(worker, allowed)
            await self._changed.wait()
        return None

    async def delivered(self, worker: str, rollout_ids: list[str]) -> None:
        """Forget what the runner has received from a worker."""
        under_way = self._queue.under_way
        self._admission.ended(self._queue.delivered(worker, rollout_ids), under_way)
        if self._admission.needed:
            self._notify()

    async def lost(self, worker: str) -> list[RolloutRequest]:
        """A worker died: its work is handed out again; returns what has used up its attempts."""
        self._dead.add(worker)
        given_up = self._queue.lost(worker)
        self._notify()
        return given_up

    async def close(self) -> None:
        """End every worker."""
        self._closed.set()
        self._notify()

    async def closed(self) -> None:
        """Return when the queue has been closed."""
        await self._closed.wait()

    def _allowed(self) -> int:
        """Rollouts that one worker may begin now."""
        room = self._admission.room(self._queue.under_way)
        return sys.maxsize if room is None else math.ceil(room / self._workers)

    async def _look_at_pools(self) -> None:
        """Tell the admission how the pools are, a few times a second while there is work."""
        while not self._closed.is_set():
            if self._queue.waiting or self._queue.under_way:
                try:
                    stats: list[PoolStats] = await self._manager.stats.remote()
                except ray.exceptions.ActorDiedError:
                    return
                except ray.exceptions.RayError:
                    pass  # the manager is being restarted
                else:
                    pools = {each.key: _view(each) for each in stats}
                    self._admission.observe(self._queue.under_way, pools, time.monotonic())
                    self._notify()
            await asyncio.sleep(_LOOK)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class _QueueSource:
    """A worker's view of the queue actor."""

    def __init__(self, actor: Any, worker: str) -> None:
        self._actor = actor
        self._worker = worker

    async def take(self, most: int) -> list[RolloutRequest] | None:
        taken: list[RolloutRequest] | None = await self._actor.take.remote(self._worker, most)
        return taken

    async def closed(self) -> None:
        await self._actor.closed.remote()


def rollout_task(
    worker: str, agent: Agent, model: ModelSpec, options: RolloutOptions, manager: ManagerHandle, work: Any
) -> Iterator[list[Trajectory]]:
    """Run a rollout worker to its end, yielding trajectories as they finish, in small batches.

    Ray's tasks may be generators but not asynchronous ones, so the event loop lives in a thread of its own.
    """
    finished: queue.SimpleQueue[Trajectory | BaseException | None] = queue.SimpleQueue()

    async def main() -> None:
        client = await ResourceClient.connect(manager)
        try:
            await RolloutWorker(agent, model, options, client).run(_QueueSource(work, worker), finished.put)
        finally:
            await client.close()

    def run_loop() -> None:
        try:
            asyncio.run(main())
            finished.put(None)
        except BaseException as error:
            finished.put(error)

    thread = threading.Thread(target=run_loop, name="rollouts", daemon=True)
    thread.start()
    batch: list[Trajectory] = []
    while True:
        item = finished.get()
        if isinstance(item, Trajectory):
            batch.append(item)
            if not finished.empty():
                continue
        if batch:
            yield batch
            batch = []
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return


def start_queue(options: RolloutOptions, claims: Iterable[ResourceSpec[Any]], manager: ManagerHandle) -> Any:
    """Start the queue's actor.

    Args:
        options: of the rollouts.
        claims: all specs that a rollout's tools may acquire.
        manager: of their pools.
    """
    slots = {spec.key: spec.max_size for spec in claims} if options.admission else {}
    actor = ray.remote(WorkQueueActor).options(num_cpus=0, max_concurrency=10_000)
    return actor.remote(options.max_attempts, options.workers, slots, manager)


def _view(stats: PoolStats) -> PoolView:
    return PoolView(stats.leased, stats.size - stats.starting, stats.waiting, stats.max_size)


def start_worker(
    worker: str, agent: Agent, model: ModelSpec, options: RolloutOptions, manager: ManagerHandle, work: Any
) -> Any:
    """Start a worker task; returns its stream of lists of trajectories.

    Ray doesn't retry it: a retried generator is replayed by position, and rollouts finish in another order
    each time. The runner starts a new one instead.
    """
    task = ray.remote(rollout_task).options(num_cpus=options.num_cpus, max_retries=0, num_returns="streaming")
    return task.remote(worker, agent, model, options, manager, work)
