"""The rollout worker: one process, many agent loops on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from agentfly.agent import Agent
from agentfly.context import LeaseBook
from agentfly.models.spec import ModelSpec
from agentfly.resources import ResourceClient
from agentfly.rollout.opener import ConversationOpener
from agentfly.rollout.player import RolloutPlayer
from agentfly.rollout.request import RolloutOptions, RolloutRequest
from agentfly.rollout.trajectory import Trajectory


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
        self._options = options
        self._opener = ConversationOpener(model, agent.tools)
        self._running: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._global = LeaseBook()
        self._player = RolloutPlayer(
            agent,
            client,
            claims=(model, *(spec for tool in agent.tools for spec in tool.claims)),
            shared=self._global,
            timeout=options.timeout,
            max_attempts=options.max_attempts,
        )

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
            emit(await self._player.play(request, self._opener, self._options.sampling))

        task = asyncio.create_task(play(), name=request.id)
        self._running.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()
