"""A user's client of an API behind its limits: what the host of an `ApiSpec` runs."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentfly.resources.api.bill import ApiUsage
from agentfly.resources.api.gate import Gate
from agentfly.resources.api.limits import ApiLimits
from agentfly.resources.resource import Resource


class LimitedClient(Resource):
    """Has the methods of a client; each call of one waits for its turn.

    Args:
        client: the user's own.
        name: of the API, for errors.
        limits: of it.
    """

    def __init__(self, client: Resource, name: str, limits: ApiLimits) -> None:
        self._client = client
        self._gate = Gate(f"API {name!r}", limits)
        self._threads = ThreadPoolExecutor(limits.concurrency, thread_name_prefix=name)

    async def start(self) -> None:
        """Start the client."""
        await self._client.start()

    async def setup(self, **arguments: Any) -> None:
        """Set the client up for a lease, with what its own `setup` names."""
        await self._client.setup(**arguments)

    async def stop(self) -> None:
        """Stop the client."""
        try:
            await self._client.stop()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def healthy(self) -> bool:
        """Ask the client."""
        return await self._client.healthy()

    async def api_usage(self) -> ApiUsage:
        """What the calls of all rollouts have come to."""
        return self._gate.usage

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._client, name)
        gate = self._gate
        if inspect.isasyncgenfunction(method):

            def stream(*args: Any, **kwargs: Any) -> Any:
                return gate.stream(functools.partial(method, *args, **kwargs))

            return stream

        async def call(*args: Any, **kwargs: Any) -> Any:
            work = functools.partial(method, *args, **kwargs)
            return await gate.call(work if inspect.iscoroutinefunction(method) else self._in_thread(work))

        return call

    def _in_thread(self, work: Callable[[], Any]) -> Callable[[], Any]:
        async def run() -> Any:
            context = contextvars.copy_context()  # what is charged in the thread goes to this call
            result = await asyncio.get_running_loop().run_in_executor(self._threads, context.run, work)
            return await result if inspect.isawaitable(result) else result

        return run
