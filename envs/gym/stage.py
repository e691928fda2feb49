"""Where episodes run: an event loop in a thread, and the pools behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeVar, cast

from agentfly.envs.gym.episode import ToolEpisode
from agentfly.envs.gym.local_pools import LocalPools

from agentfly.agent import Agent
from agentfly.context import LeaseBook
from agentfly.resources import ResourceClient
from agentfly.rollout.session import resource_session

T = TypeVar("T")
Pools = Literal["process", "ray"]


class Stage:
    """Runs coroutines for callers that aren't asynchronous.

    Args:
        pools: `process` keeps resources in this process; `ray` in pools on Ray, which is joined or started.
    """

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agentfly-gym", daemon=True)
        self._thread.start()
        self._exits = AsyncExitStack()
        self._client: ResourceClient | None = None
        self._shared = LeaseBook()
        self._episodes: list[ToolEpisode] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine; whoever is interrupted while it waits cancels it."""
        running: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    async def episode(self, agent: Agent, name: str) -> ToolEpisode:
        """A player of episodes on this stage."""
        episode = ToolEpisode(agent, await self._connected(), self._shared, name=name)
        self._episodes.append(episode)
        return episode

    def close(self) -> None:
        """Give everything back and end the loop; a second time changes nothing."""
        if self._loop.is_closed():
            return
        try:
            self.run(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _connected(self) -> ResourceClient:
        if self._client is None:
            if self._pools == "process":
                local = LocalPools()
                self._exits.push_async_callback(local.close)
                self._client = cast("ResourceClient", local)
            else:
                manager = await self._exits.enter_async_context(resource_session("gym"))
                self._client = await ResourceClient.connect(manager)
                self._exits.push_async_callback(self._client.close)
        return self._client

    async def _end(self) -> None:
        await asyncio.gather(*(episode.close() for episode in self._episodes))
        self._shared.close()
        await asyncio.sleep(0)  # for the leases that were still being made
        await self._exits.aclose()
