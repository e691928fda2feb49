"""The gateway's HTTP side: an address for one session, answered in the dialect that is spoken to it."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from agentfly.models.dialects.anthropic import AnthropicDialect
from agentfly.models.dialects.chat import ChatDialect
from agentfly.models.dialects.common import Answer, ChatRequest, Dialect, RequestRefused
from agentfly.models.dialects.responses import ResponsesDialect
from agentfly.rollout.gateway.answering import Tell

Answering = Callable[[ChatRequest, Tell | None], Awaitable[Answer]]

# Clients append their own path to a base URL, with or without the version.
DIALECTS: Mapping[str, Dialect] = {
    "chat/completions": ChatDialect(),
    "responses": ResponsesDialect(),
    "messages": AnthropicDialect(),
}
_PATH = re.compile(r"^/(?:v1/)*(.*?)/?$")
_MAX_BODY = 64 << 20


@asynccontextmanager
async def serve_session(answer: Answering, *, host: str = "127.0.0.1") -> AsyncIterator[tuple[str, str]]:
    """An HTTP server for one session, for the block; calls under way at its end are cancelled.

    Args:
        answer: answers a call, as `CaptureSession.answer`.
        host: the address to listen on.

    Yields:
        The base URL (`http://127.0.0.1:<port>/v1`) and the key that it asks for.
    """
    key = f"af-{secrets.token_urlsafe(24)}"
    app = web.Application(client_max_size=_MAX_BODY)
    app.router.add_route("*", "/{path:.*}", _Handler(answer, key).handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://{host}:{port}/v1", key
    finally:
        await runner.cleanup()


class _Handler:
    def __init__(self, answer: Answering, key: str) -> None:
        self._answer = answer
        self._key = key

    async def handle(self, http: web.Request) -> web.StreamResponse:
        match = _PATH.match(http.path)
        name = match.group(1) if match else ""
        dialect = DIALECTS.get(name)
        if dialect is None:
            body = {"error": {"message": f"there is no {http.path}; there are: {', '.join(DIALECTS)}"}}
            if name == "models":
                return web.json_response({"object": "list", "data": [{"id": "policy", "object": "model"}]})
            return web.json_response(body, status=404)
        try:
            if not authorized(http.headers, [self._key]):
                raise RequestRefused("the key is not this session's", status=401, code="invalid_api_key")
            request = dialect.read(json_body(await http.read()))
            if request.stream:
                return await self._stream(http, dialect, request)
            answer = await self._answer(request, None)
        except RequestRefused as error:
            return web.json_response(dialect.refuse(error), status=error.status, headers=refusal_headers(error))
        return web.json_response(dialect.write(request, answer))

    async def _stream(self, http: web.Request, dialect: Dialect, request: ChatRequest) -> web.StreamResponse:
        """Headers go out with the first text, so that a call that fails before it is refused in order."""
        emitter = dialect.emitter(request, f"af-{secrets.token_hex(16)}", int(time.time()))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        told = 0

        async def tell(text: str) -> None:
            nonlocal told
            if not response.prepared:
                await response.prepare(http)
                await response.write(emitter.begin().encode("utf-8", "replace"))
            await response.write(emitter.text(text).encode("utf-8", "replace"))
            told += len(text)

        try:
            answer = await self._answer(request, tell)
        except RequestRefused as error:
            if not response.prepared:
                raise
            await response.write(emitter.failed(error).encode())
            return response
        if not response.prepared:
            await response.prepare(http)
            await response.write(emitter.begin().encode())
        await response.write(emitter.end(answer, told).encode("utf-8", "replace"))
        await response.write_eof()
        return response


def refusal_headers(error: RequestRefused) -> dict[str, str]:
    """Clients retry what failed; what can't get better by that says so."""
    if error.retry_after is not None:
        return {"Retry-After": str(max(1, round(error.retry_after)))}
    return {"x-should-retry": "false"}


def authorized(headers: Mapping[str, str], keys: list[str]) -> bool:
    """Whether a call brings one of the keys, as OpenAI's or as Anthropic's clients send it."""
    given = headers.get("x-api-key") or headers.get("Authorization", "").removeprefix("Bearer ")
    return any(secrets.compare_digest(given.encode(), key.encode()) for key in keys)


def json_body(raw: bytes) -> dict[str, Any]:
    """The JSON object that a call brings. Raises RequestRefused when it is none."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise RequestRefused("the body must be a JSON object")
    return body
