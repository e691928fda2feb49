"""The agent loop: generate, parse, run the calls of a turn side by side, observe, again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from agentfly.agent import Agent, Tool, ToolResult
from agentfly.context import Context, working_time
from agentfly.errors import AgentFlyError, Deadlock, ModelError, ResourceDied, ResourceError, RewardError, StaleLease
from agentfly.models.engine import Message, Sampling
from agentfly.rollout.conversation import AssistantTurn, Conversation, ParsedCall
from agentfly.rollout.seeds import derive_seed
from agentfly.rollout.trajectory import FinishReason, Segment, Timing, Trajectory

_Stage = Literal["generating", "tools", "reward"]
_LOSSES = (ResourceDied.__name__, StaleLease.__name__, Deadlock.__name__)


class InfrastructureFault(AgentFlyError):
    """The engine stated a fault during a rollout: the rollout starts over and is never trained on."""


class RolloutLoop:
    """One attempt at one rollout.

    Whatever the policy does wrong (a malformed call, an unknown tool, a wrong argument, a tool that
    raises or hangs) becomes an observation. Only faults that the engine recorded in the context's
    ledger end the attempt, with `InfrastructureFault`.

    Args:
        agent: tools, reward and limits.
        conversation: opened with the agent's messages.
        ctx: of this attempt; the caller closes it.
        trajectory: the empty record that this attempt fills.
        sampling: how completions are drawn; each gets a seed derived from `seed` and its turn.
        seed: of the rollout.
    """

    def __init__(
        self,
        agent: Agent,
        conversation: Conversation,
        ctx: Context,
        trajectory: Trajectory,
        *,
        sampling: Sampling,
        seed: int,
        timeout: float | None,
    ) -> None:
        self._agent = agent
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in agent.tools}
        self._conversation = conversation
        self._ctx = ctx
        self._trajectory = trajectory
        self._sampling = sampling
        self._seed = seed
        self._timeout = timeout
        self._invalid_turns = 0
        self._sampled = 0
        self._parallel = asyncio.Semaphore(agent.max_parallel_calls)

    async def run(self) -> Trajectory:
        """Play to the end, then compute the reward while the rollout still holds its resources.

        Raises:
            InfrastructureFault: the attempt is void.
        """
        started = time.monotonic()
        trajectory = self._trajectory
        try:
            async with working_time(self._timeout, lambda: self._ctx.waited):
                trajectory.finish_reason = await self._turns()
        except TimeoutError:
            trajectory.finish_reason = "timeout"
        trajectory.messages = list(self._conversation.messages)
        trajectory.segments = self._conversation.segments()
        trajectory.metrics.update(stream_metrics(trajectory.segments, self._conversation.drift()))
        await self._reward()
        trajectory.metrics.update(self._ctx.metrics)
        trajectory.timing.waiting = self._ctx.waited
        trajectory.timing.total = time.monotonic() - started
        return trajectory

    async def _turns(self) -> FinishReason:
        while True:
            if (limit := self._limit_reached()) is not None:
                return limit
            turn = await self._generate()
            if turn.truncated:
                self._trajectory.truncated = True
                return "context_full" if self._context_is_full() else "max_tokens"
            if not turn.calls:
                return "stop"
            results = await self._run_calls(turn.calls)
            self._conversation.add(
                [_observation(call, result) for call, result in zip(turn.calls, results, strict=True)]
            )
            if any(result.terminal for result in results):
                return "terminal"
            self._invalid_turns = self._invalid_turns + 1 if all(call.error for call in turn.calls) else 0

    def _limit_reached(self) -> FinishReason | None:
        agent = self._agent
        if self._trajectory.turns >= agent.max_turns:
            return "max_turns"
        if agent.max_invalid_calls is not None and self._invalid_turns >= agent.max_invalid_calls:
            return "invalid_calls"
        if agent.max_total_tokens is not None and self._sampled >= agent.max_total_tokens:
            return "max_tokens"
        return "context_full" if self._context_is_full() else None

    def _context_is_full(self) -> bool:
        limit = self._conversation.max_context
        return limit is not None and self._conversation.prompt_length >= limit

    async def _generate(self) -> AssistantTurn:
        agent, trajectory = self._agent, self._trajectory
        limits = [self._sampling.max_tokens, agent.max_tokens]
        if agent.max_total_tokens is not None:
            limits.append(agent.max_total_tokens - self._sampled)
        self._ctx.turn = trajectory.turns
        sampling = replace(
            self._sampling,
            max_tokens=min(limit for limit in limits if limit is not None),
            seed=derive_seed(self._seed, "turn", trajectory.turns),
        )
        with self._stage("generating"):
            try:
                turn = await self._conversation.next(sampling)
            except (ModelError, ResourceError) as error:
                raise InfrastructureFault(f"the model failed in turn {trajectory.turns}: {error}") from error
        trajectory.turns += 1
        self._sampled += turn.completion_tokens
        return turn

    async def _run_calls(self, calls: Sequence[ParsedCall]) -> list[ToolResult]:
        with self._stage("tools"):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_call(call)) for call in calls]
        results = [task.result() for task in tasks]
        fault = next((result for result in results if isinstance(result, InfrastructureFault)), None)
        if fault is not None:
            raise fault
        done = [result for result in results if isinstance(result, ToolResult)]
        self._trajectory.tool_calls += len(done)
        self._trajectory.tool_errors += sum(result.is_error for result in done)
        for result in done:
            self._ctx.log(**result.metrics)
        return done

    async def _run_call(self, call: ParsedCall) -> ToolResult | InfrastructureFault:
        """Run one call; a fault is returned, not raised, so that its siblings end in order."""
        if call.error is not None or call.name is None:
            return ToolResult(call.error or "the call names no tool", is_error=True)
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolResult(f"there is no tool {call.name!r}; the tools are: {', '.join(self._tools)}", is_error=True)
        known_faults = len(self._ctx.faults)
        async with self._parallel:
            try:
                with self._ctx.call_scope():
                    result = await tool.call(call.arguments or {}, self._ctx)
            except (ResourceError, ModelError) as error:
                # The text of an error proves nothing, a policy could provoke it: the ledger decides.
                if len(self._ctx.faults) > known_faults:
                    return InfrastructureFault(f"tool {tool.name}: {error}")
                return ToolResult(f"{type(error).__name__}: {error}", is_error=True)
        # A tool may well catch that nothing was free in time. That what it held is gone no tool can make good.
        lost = [fault for fault in self._ctx.faults[known_faults:] if fault.kind in _LOSSES]
        return InfrastructureFault(f"tool {tool.name}: {lost[0].detail}") if lost else result

    async def _reward(self) -> None:
        if self._agent.reward is None:
            return
        trajectory = self._trajectory
        known_faults = len(self._ctx.faults)
        with self._stage("reward"):
            try:
                result = await self._agent.reward(
                    final_response=trajectory.final_response, trajectory=trajectory, ctx=self._ctx
                )
            except (RewardError, ResourceError, ModelError) as error:
                if len(self._ctx.faults) > known_faults:
                    raise InfrastructureFault(f"the reward: {error}") from error
                trajectory.error = f"{type(error).__name__}: {error}"
                return
        trajectory.reward = result.value
        trajectory.metrics.update(result.metrics)

    @contextmanager
    def _stage(self, stage: _Stage) -> Iterator[None]:
        """Add the block's seconds, queueing taken out, to the stage."""
        timing: Timing = self._trajectory.timing
        clock: Callable[[], float] = lambda: time.monotonic() - self._ctx.waited  # noqa: E731
        started = clock()
        try:
            yield
        finally:
            setattr(timing, stage, getattr(timing, stage) + max(0.0, clock() - started))


def stream_metrics(segments: Sequence[Segment], drift: bool | None) -> dict[str, float]:
    """How true a rollout's tokens are to its template: the job reports the means.

    Args:
        segments: of the rollout; more than one where the format couldn't be extended.
        drift: whether rendering the conversation anew would have given other tokens; None when that isn't known.
    """
    metrics = {"segments": float(len(segments))} if segments else {}
    return metrics if drift is None else {**metrics, "drift": float(drift)}


def _observation(call: ParsedCall, result: ToolResult) -> Message:
    message: Message = {"role": "tool", "tool_call_id": call.id, "content": result.content}
    if call.name is not None:
        message["name"] = call.name
    return message
