"""What an agent loop worker of verl's keeps between rollouts: the agent, the chat format, the way to the pools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import ray
from agentfly.backends.verl.groups import GroupBook
from agentfly.backends.verl.settings import LoopSettings

from agentfly.agent import Agent
from agentfly.context import LeaseBook
from agentfly.models.engine import Sampling
from agentfly.resources import ResourceClient, start_manager
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.player import Opener, RolloutPlayer
from agentfly.rollout.request import RolloutRequest
from agentfly.rollout.trajectory import Trajectory

# verl makes a loop object for every rollout; what it gives them that lives as long as the worker is its client.
_sessions: WeakKeyDictionary[Any, dict[str, WorkerSession]] = WeakKeyDictionary()


class WorkerSession:
    """One for each process and agent.

    Args:
        agent: what plays.
        format: of the model.
        settings: of the loop.
    """

    def __init__(self, agent: Agent, format: ChatFormat, settings: LoopSettings) -> None:
        self.agent = agent
        self.format = format
        self.schemas: Sequence[Mapping[str, Any]] = [tool.spec for tool in agent.tools]
        self.groups = GroupBook()
        self._settings = settings
        self._shared = LeaseBook()
        self._room = asyncio.Semaphore(settings.concurrency) if settings.concurrency is not None else None
        self._ages = 0
        self._player: asyncio.Task[RolloutPlayer] | None = None
        self.client: ResourceClient | None = None
        self._recorder: Any = None

    def next_age(self) -> int:
        """Position of a rollout in the order in which they came."""
        self._ages += 1
        return self._ages

    async def play(self, request: RolloutRequest, opener: Opener, sampling: Sampling) -> Trajectory:
        """Play one rollout as soon as there is room; never raises but for cancellation and a manager that is gone."""
        if self._player is None:
            self._player = asyncio.create_task(self._start())
        player = await asyncio.shield(self._player)
        async with self._room or contextlib.nullcontext():
            return await player.play(request, opener, sampling)

    async def record(self, step: int, trajectory: Trajectory, *, evaluation: bool) -> None:
        """Hand a trajectory to the job that asked for them."""
        if self._settings.recorder is None:
            return
        if self._recorder is None:
            self._recorder = await asyncio.to_thread(ray.get_actor, self._settings.recorder, "agentfly")
        await self._recorder.add.remote(step, trajectory, evaluation)

    async def close(self) -> None:
        """Give everything back; for processes that outlive their job."""
        self._shared.close()
        if self.client is not None:
            await self.client.close()

    async def _start(self) -> RolloutPlayer:
        if ray.is_initialized():
            job = f"verl-{ray.get_runtime_context().get_job_id()}"
            manager = await asyncio.to_thread(start_manager, job, join=True)
            self.client = await ResourceClient.connect(manager)
        return RolloutPlayer(
            self.agent,
            self.client,
            claims=tuple(spec for tool in self.agent.tools for spec in tool.claims),
            shared=self._shared,
            timeout=self._settings.timeout,
            max_attempts=self._settings.max_attempts,
        )


def sessions_of(server: Any) -> dict[str, WorkerSession]:
    """The sessions of the worker whose client this is, by the key of their settings."""
    return _sessions.setdefault(server, {})


@contextlib.asynccontextmanager
async def closing_sessions(server: Any) -> AsyncIterator[None]:
    """Close the client's sessions after the block."""
    try:
        yield
    finally:
        for session in _sessions.pop(server, {}).values():
            await session.close()
