"""A real HTTP server of OpenAI's chat protocol, on the loopback, with the faults that real ones have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Reply:
    """One answer of the server.

    Attributes:
        body: sent as JSON, or as it is when it is a text.
        status, headers: of the response.
        never: keep the client waiting until it gives up.
    """

    body: Mapping[str, Any] | str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    never: bool = False


@dataclass
class ChatServer:
    """Plays prepared replies and keeps the requests.

    Attributes:
        url: for a client's base_url.
        key: what a client must authorise itself with; None asks for nothing.
        requests: bodies received, `authorization` beside.
    """

    url: str = ""
    key: str | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    authorization: list[str | None] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request for a completion."""
        self.requests.append(await request.json())
        self.authorization.append(request.headers.get("Authorization"))
        if self.key is not None and self.authorization[-1] != f"Bearer {self.key}":
            wrong = (self.authorization[-1] or "").removeprefix("Bearer ")
            return web.json_response({"error": {"message": f"Incorrect API key provided: {wrong}"}}, status=401)
        reply = self.replies.pop(0)
        if reply.never:
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.abandoned.set()
        if isinstance(reply.body, str):
            headers = {"Content-Type": "application/json", **reply.headers}
            return web.Response(text=reply.body, status=reply.status, headers=headers)
        return web.json_response(dict(reply.body), status=reply.status, headers=dict(reply.headers))


@asynccontextmanager
async def chat_server(*replies: Reply, key: str | None = None) -> AsyncIterator[ChatServer]:
    """A server on a free port for the block."""
    server = ChatServer(key=key, replies=list(replies))
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        server.url = f"http://127.0.0.1:{port}/v1"
        yield server
    finally:
        await runner.cleanup()


def completion(content: str | None, *calls: tuple[str, str], finish: str = "stop", **message: Any) -> Reply:
    """A reply with one answer.

    Args:
        content: of the assistant.
        calls: name and arguments of its tool calls.
        finish: the finish reason.
        message: further fields of the assistant's message.
    """
    said: dict[str, Any] = {"role": "assistant", "content": content, **message}
    if calls:
        said["tool_calls"] = [
            {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(calls)
        ]
    return Reply(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": said, "finish_reason": finish}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        }
    )
