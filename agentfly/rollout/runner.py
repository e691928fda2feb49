"""The runner: keeps workers fed with a bounded amount of work and hands groups back as they complete."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import ray

from agentfly.agent import Agent
from agentfly.errors import AgentFlyError
from agentfly.models.spec import ModelSpec
from agentfly.resources import ManagerHandle, ResourceClient
from agentfly.rollout.groups import GroupAssembler
from agentfly.rollout.player import failed
from agentfly.rollout.request import GroupRequest, RolloutOptions, RolloutRequest
from agentfly.rollout.task import start_queue, start_worker
from agentfly.rollout.trajectory import Group, Trajectory

_log = logging.getLogger(__name__)
_MAX_DEATHS_IN_A_ROW = 5


class RolloutRunner:
    """Runs groups of rollouts on Ray workers. An async context manager; one `run` at a time.

    Args:
        agent: what plays; it travels to the workers by cloudpickle.
        model: the pool of engines.
        options: workers, concurrency, sampling and limits.
        manager: the resource manager that all of the job shares.
    """

    def __init__(self, agent: Agent, model: ModelSpec, options: RolloutOptions, *, manager: ManagerHandle) -> None:
        self._agent = agent
        self._model = model
        self._options = options
        self._manager = manager
        self._finished: asyncio.Queue[Trajectory | BaseException] = asyncio.Queue()
        self._consumers: list[asyncio.Task[None]] = []
        self._ages = itertools.count()
        self._names = itertools.count()

    async def __aenter__(self) -> Self:
        self._client = await ResourceClient.connect(self._manager)
        claims = [spec for tool in self._agent.tools for spec in tool.claims]
        self._queue = start_queue(self._options, claims, self._manager)
        self._agent_ref = ray.put(self._agent)
        self._consumers = [asyncio.create_task(self._keep_worker()) for _ in range(self._options.workers)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._queue.close.remote()
            await asyncio.gather(*self._consumers, return_exceptions=True)
        finally:
            for consumer in self._consumers:
                consumer.cancel()
            ray.kill(self._queue)
            await self._client.close()

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Put new weights (name to array, Hugging Face names) into every engine of the pool, later ones included."""
        await self._client.broadcast(self._model, "update_weights", weights, version, replay=True)

    async def run(self, requests: Iterable[GroupRequest]) -> AsyncIterator[Group]:
        """Run groups and yield each when its last member has ended, in order of completion.

        The iterable is drawn only as fast as the workers take it, so it may be endless, and slow consumers hold
        it up.

        Raises:
            AgentFlyError: workers die again and again, or the engine that serves the job is lost.
        """
        source = iter(requests)
        groups = GroupAssembler()
        # One group more than the workers can hold keeps them busy while the next is being fetched.
        room = self._options.workers * self._options.concurrency
        while True:
            await self._feed(source, groups, room)
            if not groups.open_rollouts:
                return
            item = await self._finished.get()
            if isinstance(item, BaseException):
                raise item
            if (group := groups.add(item)) is not None:
                yield group

    async def _feed(self, source: Iterator[GroupRequest], groups: GroupAssembler, room: int) -> None:
        batch: list[RolloutRequest] = []
        while groups.open_rollouts < 2 * room and (request := next(source, None)) is not None:
            batch.extend(groups.open(request, next(self._ages)))
        if batch:
            await self._queue.add.remote(batch)

    async def _keep_worker(self) -> None:
        """Consume one worker's stream; start another when it dies, until the queue is closed."""
        deaths = 0
        while True:
            name = f"worker-{next(self._names)}"
            stream = start_worker(name, self._agent_ref, self._model, self._options, self._manager, self._queue)
            try:
                async for ref in stream:
                    await self._deliver(name, await ref)
                    deaths = 0
                return
            except ray.exceptions.RayTaskError as error:
                self._finished.put_nowait(AgentFlyError(f"{name} failed: {error.cause}"))
                return
            except ray.exceptions.RayError as error:
                deaths += 1
                _log.warning("%s died (%s); its rollouts start over", name, type(error).__name__)
                for request in await self._queue.lost.remote(name):
                    died = f"the worker process died {request.attempt} times while this rollout ran in it"
                    self._finished.put_nowait(failed(request, request.attempt, died))
                if deaths >= _MAX_DEATHS_IN_A_ROW:
                    message = (
                        f"rollout workers died {deaths} times in a row without finishing a rollout; the last: {error}"
                    )
                    self._finished.put_nowait(AgentFlyError(message))
                    return

    async def _deliver(self, worker: str, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            self._finished.put_nowait(trajectory)
        await self._queue.delivered.remote(worker, [trajectory.rollout_id for trajectory in trajectories])
