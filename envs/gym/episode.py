"""One episode of an agent's tools: the agent loop itself, its assistant played by the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from agentfly.envs.gym.conversation import PlayedConversation

from agentfly.agent import Agent
from agentfly.context import Context, LeaseBook, Task
from agentfly.errors import RewardError
from agentfly.models.engine import Message, Sampling
from agentfly.resources import ResourceClient
from agentfly.rollout.loop import RolloutLoop
from agentfly.rollout.trajectory import Trajectory
from agentfly.rollout.turns import AssistantTurn

_TRUNCATED: Final = frozenset({"max_turns", "max_tokens", "context_full", "timeout"})


@dataclass(frozen=True)
class Transition:
    """What a turn brought about, in Gymnasium's terms.

    Attributes:
        observation: the texts that answer the turn; empty when it ended the episode by itself.
        reward: the agent's, at the end; 0 before.
        info: at the end `finish_reason`, `turns`, and the metrics.
    """

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)


class ToolEpisode:
    """Plays one episode after the other. Belongs to one event loop.

    Args:
        agent: tools, reward, limits.
        client: the way to the pools.
        shared: leases of the scope `global`.
        name: in rollout ids.
    """

    def __init__(self, agent: Agent, client: ResourceClient, shared: LeaseBook, *, name: str) -> None:
        self._agent = agent
        self._client = client
        self._shared = shared
        self._name = name
        self._count = 0
        self._seen = 0
        self._conversation = PlayedConversation([])
        self._ctx: Context | None = None
        self._loop: asyncio.Task[Trajectory] | None = None

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far."""
        return self._conversation.messages

    @property
    def turn(self) -> int:
        """Turns said so far."""
        return sum(message["role"] == "assistant" for message in self.messages)

    @property
    def running(self) -> bool:
        """Whether a turn is wanted."""
        return self._loop is not None

    async def reset(self, task: Task, seed: int) -> str:
        """Open the conversation on a task; gives its opening as text."""
        await self.close()
        self._count += 1
        opening = self._agent.open(task)
        self._conversation = PlayedConversation(opening)
        self._seen = len(opening)
        claims = list({spec.key: spec for tool in self._agent.tools for spec in tool.claims}.values())
        identity = f"{self._name}.{self._count}"
        self._ctx = Context(
            rollout_id=identity,
            group_id=identity,
            task=task,
            seed=seed,
            client=self._client,
            claims=claims,
            shared=self._shared,
        )
        trajectory = Trajectory(identity, identity, 0, task)
        loop = RolloutLoop(
            self._agent, self._conversation, self._ctx, trajectory, sampling=Sampling(), seed=seed, timeout=None
        )
        self._loop = asyncio.create_task(loop.run(), name=identity)
        await self._settle(self._loop)
        return "\n\n".join(_text(message) for message in opening)

    async def step(self, turn: AssistantTurn) -> Transition:
        """Say a turn and wait for what answers it.

        Raises:
            RuntimeError: the episode is over, or was never begun.
            InfrastructureFault: the episode is void.
            RewardError: the reward raised.
        """
        if self._loop is None:
            raise RuntimeError("the episode is over: call reset() first")
        loop = self._loop
        self._conversation.say(turn)
        await self._settle(loop)
        new = [message for message in self.messages[self._seen :] if message["role"] != "assistant"]
        self._seen = len(self.messages)
        observation = "\n".join(str(message["content"]) for message in new)
        if not loop.done():
            return Transition(observation)
        try:
            return _last(loop.result(), observation)
        finally:
            await self.close()

    async def close(self) -> None:
        """End the episode and give back what it holds."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await loop
        ctx, self._ctx = self._ctx, None
        if ctx is not None:
            await ctx.close()

    async def _settle(self, loop: asyncio.Task[Trajectory]) -> None:
        """Until the loop wants a turn or has ended."""
        wanted = asyncio.create_task(self._conversation.wanted.wait())
        try:
            await asyncio.wait({loop, wanted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wanted.cancel()


def _last(trajectory: Trajectory, observation: str) -> Transition:
    if trajectory.error is not None:
        raise RewardError(trajectory.error)
    truncated = trajectory.finish_reason in _TRUNCATED
    info = {"finish_reason": trajectory.finish_reason, "turns": trajectory.turns, "metrics": dict(trajectory.metrics)}
    return Transition(observation, float(trajectory.reward or 0.0), not truncated, truncated, info)


def _text(message: Message) -> str:
    content = message["content"]
    return content if isinstance(content, str) else str(content)
