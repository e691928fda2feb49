"""The rollout worker: one process, many agent loops on one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from agentfly.agent import Agent
from agentfly.context import Context, LeaseBook
from agentfly.errors import ModelError, ResourceError
from agentfly.models.spec import ModelSpec
from agentfly.resources import ResourceClient
from agentfly.rollout.conversation import Conversation
from agentfly.rollout.loop import InfrastructureFault, RolloutLoop
from agentfly.rollout.opener import ConversationOpener
from agentfly.rollout.request import RolloutOptions, RolloutRequest
from agentfly.rollout.trajectory import Trajectory

_log = logging.getLogger(__name__)


class WorkSource(Protocol):
    """Where a worker's rollouts come from."""

    async def take(self, most: int) -> list[RolloutRequest] | None:
        """Up to `most` rollouts, as soon as there is one; None when there will be no more."""
        ...

    async def closed(self) -> None:
        """Return when the job wants its workers to stop at once."""
        ...


class RolloutWorker:
    """Runs rollouts, at most `options.concurrency` at once, until its source ends or closes.

    Args:
        agent: what plays.
        model: the pool of engines that it plays with.
        options: limits and sampling.
        client: this process's way to the resource pools.
    """

    def __init__(self, agent: Agent, model: ModelSpec, options: RolloutOptions, client: ResourceClient) -> None:
        self._agent = agent
        self._model = model
        self._options = options
        self._client = client
        self._opener = ConversationOpener(model, agent.tools)
        self._running: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._global = LeaseBook()
        self._claims = (model, *(spec for tool in agent.tools for spec in tool.claims))

    async def run(self, source: WorkSource, emit: Callable[[Trajectory], None]) -> None:
        """Pull, play, emit. On a closed source running rollouts are cancelled and give back what they hold."""
        closed = asyncio.ensure_future(source.closed())
        self._watch(closed)
        pull: asyncio.Future[list[RolloutRequest] | None] | None = None
        exhausted = False
        try:
            while not closed.done() and not (exhausted and not self._running):
                free = self._options.concurrency - len(self._running)
                if pull is None and free > 0 and not exhausted:
                    pull = asyncio.ensure_future(source.take(free))
                    self._watch(pull)
                await self._wake.wait()
                self._wake.clear()
                if pull is not None and pull.done():
                    taken, pull = pull.result(), None
                    exhausted = taken is None
                    for request in taken or ():
                        self._start(request, emit)
        finally:
            for future in (closed, pull):
                if future is not None:
                    future.cancel()
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            self._global.close()

    def _watch(self, future: asyncio.Future[Any]) -> None:
        future.add_done_callback(lambda _: self._wake.set())

    def _start(self, request: RolloutRequest, emit: Callable[[Trajectory], None]) -> None:
        async def play() -> None:
            emit(await self.rollout(request))

        task = asyncio.create_task(play(), name=request.id)
        self._running.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()

    async def rollout(self, request: RolloutRequest) -> Trajectory:
        """Play one rollout, starting over after infrastructure faults; never raises but for cancellation."""
        fault: Exception | None = None
        attempts = self._options.max_attempts
        for attempt in range(request.attempt, attempts):
            try:
                return await self._attempt(request, attempt)
            except InfrastructureFault as error:
                _log.warning("rollout %s, attempt %d: %s", request.id, attempt, error)
                fault = error
            except Exception as error:  # a bug of ours or of the agent's opening must not take the worker down
                _log.exception("rollout %s failed", request.id)
                return _failed(request, attempt, f"{type(error).__name__}: {error}")
        return _failed(request, attempts, f"gave up after {attempts} attempts; the last: {fault}")

    async def _attempt(self, request: RolloutRequest, attempt: int) -> Trajectory:
        ctx = Context(
            rollout_id=request.id,
            group_id=request.group_id,
            task=request.task,
            seed=request.seed,
            client=self._client,
            priority=float(request.age),
            claims=self._claims,
            shared=self._global,
        )
        try:
            trajectory = Trajectory(request.id, request.group_id, request.index, request.task, attempt=attempt)
            conversation = await self._open(request, ctx)
            loop = RolloutLoop(
                self._agent,
                conversation,
                ctx,
                trajectory,
                sampling=self._options.sampling,
                seed=request.seed,
                timeout=self._options.timeout,
            )
            return await loop.run()
        finally:
            await ctx.close()

    async def _open(self, request: RolloutRequest, ctx: Context) -> Conversation:
        messages = self._agent.open(request.task)
        try:
            return await self._opener.open(ctx, messages)
        except (ResourceError, ModelError) as error:
            raise InfrastructureFault(f"no model: {error}") from error


def _failed(request: RolloutRequest, attempt: int, error: str) -> Trajectory:
    return Trajectory(
        request.id,
        request.group_id,
        request.index,
        request.task,
        finish_reason="error",
        attempt=attempt,
        error=error,
    )
