"""Plays one rollout to its end: opens the conversation, runs the loop, starts over after infrastructure faults."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from agentfly.agent import Agent
from agentfly.agent.harness import HarnessAgent
from agentfly.context import Context, LeaseBook
from agentfly.errors import ConfigError, ModelError, ResourceError
from agentfly.models.engine import Message, Sampling
from agentfly.resources import ResourceClient, ResourceSpec
from agentfly.rollout.conversation import Conversation
from agentfly.rollout.harness import HarnessRollout, PolicySource
from agentfly.rollout.loop import InfrastructureFault, RolloutLoop
from agentfly.rollout.request import RolloutRequest
from agentfly.rollout.trajectory import Trajectory

_log = logging.getLogger(__name__)


class Opener(Protocol):
    """Where conversations come from."""

    async def open(self, ctx: Context, messages: Sequence[Message]) -> Conversation:
        """A conversation with a model that begins with these messages.

        Raises:
            ResourceError, ModelError: there is no model to be had.
        """
        ...


class RolloutPlayer:
    """Plays rollouts of one agent; any number at a time.

    Args:
        agent: what plays.
        client: this process's way to the resource pools; None where there are none.
        claims: all specs that a rollout may hold at the same time.
        shared: the leases of scope `global`, for this process.
        timeout: seconds that a rollout may work, time in queues not counted; None is no limit.
        max_attempts: runs of one rollout before an infrastructure fault ends it.
    """

    def __init__(
        self,
        agent: Agent,
        client: ResourceClient | None,
        *,
        claims: Sequence[ResourceSpec[Any]],
        shared: LeaseBook,
        timeout: float | None,
        max_attempts: int,
    ) -> None:
        self._agent = agent
        self._client = client
        self._claims = claims
        self._shared = shared
        self._timeout = timeout
        self._max_attempts = max_attempts

    async def play(self, request: RolloutRequest, opener: Opener, sampling: Sampling) -> Trajectory:
        """Play one rollout, starting over after infrastructure faults; never raises but for cancellation."""
        fault: Exception | None = None
        for attempt in range(request.attempt, self._max_attempts):
            try:
                return await self._attempt(request, attempt, opener, sampling)
            except InfrastructureFault as error:
                _log.warning("rollout %s, attempt %d: %s", request.id, attempt, error)
                fault = error
            except Exception as error:  # a bug of ours or of the agent's opening must not take the worker down
                _log.exception("rollout %s failed", request.id)
                return failed(request, attempt, f"{type(error).__name__}: {error}")
        return failed(request, self._max_attempts, f"gave up after {self._max_attempts} attempts; the last: {fault}")

    async def _attempt(self, request: RolloutRequest, attempt: int, opener: Opener, sampling: Sampling) -> Trajectory:
        ctx = Context(
            rollout_id=request.id,
            group_id=request.group_id,
            task=request.task,
            seed=request.seed,
            client=self._client,
            priority=float(request.age),
            claims=self._claims,
            shared=self._shared,
        )
        try:
            trajectory = Trajectory(request.id, request.group_id, request.index, request.task, attempt=attempt)
            if isinstance(self._agent, HarnessAgent):
                if not isinstance(opener, PolicySource):
                    raise ConfigError("this backend runs our own agents only: a HarnessAgent needs the native backend")
                harness = HarnessRollout(
                    self._agent, ctx, trajectory, sampling=sampling, seed=request.seed, timeout=self._timeout
                )
                return await harness.run(opener)
            conversation = await self._open(request, ctx, opener)
            loop = RolloutLoop(
                self._agent,
                conversation,
                ctx,
                trajectory,
                sampling=sampling,
                seed=request.seed,
                timeout=self._timeout,
            )
            return await loop.run()
        finally:
            await ctx.close()

    async def _open(self, request: RolloutRequest, ctx: Context, opener: Opener) -> Conversation:
        messages = self._agent.open(request.task)
        try:
            return await opener.open(ctx, messages)
        except (ResourceError, ModelError) as error:
            raise InfrastructureFault(f"no model: {error}") from error


def failed(request: RolloutRequest, attempt: int, error: str) -> Trajectory:
    """The record of a rollout that came to nothing."""
    return Trajectory(
        request.id,
        request.group_id,
        request.index,
        request.task,
        finish_reason="error",
        attempt=attempt,
        error=error,
    )
