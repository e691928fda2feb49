"""One attempt at a rollout of an agent that isn't ours, behind the capture gateway."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

from agentfly.agent.harness import HarnessAgent
from agentfly.context import Context, working_time
from agentfly.errors import AgentFlyError, ModelError, ResourceError, RewardError
from agentfly.models.engine import Engine, Sampling
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.gateway.server import serve_session
from agentfly.rollout.gateway.session import CaptureSession, SessionLimits
from agentfly.rollout.loop import InfrastructureFault, stream_metrics
from agentfly.rollout.trajectory import FinishReason, Trajectory


@runtime_checkable
class PolicySource(Protocol):
    """Where a harness's policy comes from."""

    async def policy(self, ctx: Context) -> tuple[Engine, ChatFormat, int]:
        """An engine that is leased to the rollout, its chat format, and its longest context.

        Raises:
            ResourceError, ModelError: there is no engine to be had.
            ConfigError: the engine gives no tokens.
        """
        ...


class HarnessRollout:
    """Runs a harness to its end, then computes the reward while the rollout still holds its resources.

    Args:
        agent: the harness, its reward and limits.
        ctx: of this attempt; the caller closes it.
        trajectory: the empty record that this attempt fills.
        sampling: of the job.
        seed: of the rollout.
        timeout: seconds that it may work.
    """

    def __init__(
        self,
        agent: HarnessAgent,
        ctx: Context,
        trajectory: Trajectory,
        *,
        sampling: Sampling,
        seed: int,
        timeout: float | None,
    ) -> None:
        self._agent = agent
        self._ctx = ctx
        self._trajectory = trajectory
        self._sampling = sampling
        self._seed = seed
        self._timeout = timeout
        self._said: str | None = None

    async def run(self, source: PolicySource) -> Trajectory:
        """Play to the end.

        Raises:
            InfrastructureFault: the attempt is void.
        """
        started = time.monotonic()
        try:
            engine, format, max_context = await source.policy(self._ctx)
        except (ResourceError, ModelError) as error:
            raise InfrastructureFault(f"no model: {error}") from error
        session = self._session(engine, format, max_context)
        trajectory = self._trajectory
        trajectory.finish_reason = await self._play(session)
        if session.fault is not None:
            raise InfrastructureFault(f"the model failed: {session.fault}") from session.fault
        self._record(session)
        await self._reward()
        trajectory.metrics.update(self._ctx.metrics)
        trajectory.timing.waiting = self._ctx.waited
        trajectory.timing.total = time.monotonic() - started
        return trajectory

    def _session(self, engine: Engine, format: ChatFormat, max_context: int) -> CaptureSession:
        agent = self._agent
        limits = SessionLimits(
            max_calls=agent.max_turns,
            max_tokens=min(self._sampling.max_tokens, agent.max_tokens or self._sampling.max_tokens),
            max_context=max_context,
            max_total_tokens=agent.max_total_tokens,
        )
        return CaptureSession(
            engine,
            format,
            id=self._ctx.rollout_id,
            sampling=self._sampling,
            seed=self._seed,
            limits=limits,
            priority=int(self._ctx.priority),
        )

    async def _play(self, session: CaptureSession) -> FinishReason:
        """Run the harness; whatever it raises is its own, unless a limit or a fault stands behind it."""
        try:
            async with (
                working_time(self._timeout, lambda: self._ctx.waited),
                serve_session(session.answer) as (base_url, key),
            ):
                try:
                    self._said = await self._agent.run(self._ctx.task, base_url, key)
                except TimeoutError as error:  # the harness's own, not ours
                    raise _HarnessTimeout(str(error)) from error
        except TimeoutError:
            return "timeout"
        except Exception as error:  # a program of others
            if session.limit is not None:
                return session.limit
            cause = error.__cause__ if isinstance(error, _HarnessTimeout) and error.__cause__ else error
            self._trajectory.error = f"the harness raised {type(cause).__name__}: {cause}"[:2000]
            return "error"
        return session.limit or "stop"

    def _record(self, session: CaptureSession) -> None:
        trajectory, capture = self._trajectory, session.capture
        trajectory.messages = session.messages
        trajectory.segments = capture.segments()
        trajectory.turns = capture.calls
        trajectory.truncated = session.truncated
        trajectory.tool_calls = sum(len(message.get("tool_calls") or ()) for message in trajectory.messages)
        trajectory.timing.generating = session.generating
        trajectory.metrics.update(stream_metrics(trajectory.segments, session.drift()))

    async def _reward(self) -> None:
        trajectory = self._trajectory
        if self._agent.reward is None or trajectory.finish_reason == "error":
            return
        known_faults = len(self._ctx.faults)
        final = trajectory.final_response if self._said is None else self._said
        started = time.monotonic()
        try:
            result = await self._agent.reward(final_response=final, trajectory=trajectory, ctx=self._ctx)
        except (RewardError, ResourceError, ModelError) as error:
            if len(self._ctx.faults) > known_faults:
                raise InfrastructureFault(f"the reward: {error}") from error
            trajectory.error = f"{type(error).__name__}: {error}"
            return
        finally:
            trajectory.timing.reward = time.monotonic() - started
        trajectory.reward = result.value
        trajectory.metrics.update(result.metrics)


class _HarnessTimeout(AgentFlyError):
    """A TimeoutError of the harness, under another name than that of the rollout's limit."""
