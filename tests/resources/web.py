"""A web API on this machine with a rate of its own, and a client of it that runs in a host."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from aiohttp import web

from agentfly.resources import Resource
from agentfly.resources.api import RateLimited, charge


class Service:
    """Answers `/echo`, refuses requests as it is told.

    Attributes:
        arrivals: when each request came.
        refuse: requests to refuse from now on, each with this Retry-After (None sends none).
        refusals: when it refused.
    """

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.refusals: list[float] = []
        self.refuse: list[str | None] = []
        self.url = ""

    async def echo(self, request: web.Request) -> web.Response:
        """What was asked, and how many tokens that took."""
        self.arrivals.append(time.monotonic())
        if self.refuse:
            self.refusals.append(time.monotonic())
            wait = self.refuse.pop(0)
            return web.Response(status=429, headers={} if wait is None else {"Retry-After": wait})
        return web.json_response({"text": request.query["text"], "tokens": 100})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Service]:
        """Serve on a free port."""
        app = web.Application()
        app.router.add_get("/echo", self.echo)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()


class EchoClient(Resource):
    """A user's client."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def start(self) -> None:
        self.http = httpx.AsyncClient(base_url=self.url)

    async def stop(self) -> None:
        await self.http.aclose()

    async def echo(self, text: str) -> str:
        """What the service says."""
        response = await self.http.get("/echo", params={"text": text})
        response.raise_for_status()
        charge(output_tokens=response.json()["tokens"])
        return str(response.json()["text"])

    async def words(self, text: str) -> AsyncIterator[str]:
        """The same, word by word."""
        for word in (await self.echo(text)).split():
            yield word

    def echo_in_a_thread(self, text: str) -> str:
        """The same, with a client that blocks."""
        response = httpx.get(f"{self.url}/echo", params={"text": text})
        response.raise_for_status()
        charge(output_tokens=response.json()["tokens"], cost=0.5)
        return str(response.json()["text"])

    async def broken(self) -> None:
        """Raise what has nothing to do with rates."""
        raise LookupError("nothing there")

    async def always_refused(self) -> None:
        """Raise a refusal of one's own."""
        raise RateLimited("come back later", retry_after=0.01)
