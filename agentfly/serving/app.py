"""The deployment on Ray Serve: HTTP in, the pool's answers out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentfly.errors import ConfigError
from agentfly.models.dialects.common import Dialect, RequestRefused
from agentfly.models.dialects.completions import CompletionsDialect
from agentfly.models.spec import ModelSpec
from agentfly.resources import ManagerHandle, ResourceClient
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.gateway.server import DIALECTS, authorized, json_body, refusal_headers
from agentfly.serving.endpoint import PoolEndpoint, events

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

ROUTES: Mapping[str, Dialect] = {**DIALECTS, "completions": CompletionsDialect()}
APP_NAME = "agentfly"


@dataclass(frozen=True)
class ServeOptions:
    """How a pool is served.

    Attributes:
        name: what clients call the model.
        host, port: where it listens.
        keys: any of them opens it; none, and it is open to everybody who reaches it.
        http_replicas: processes that speak HTTP, parse and render; the engines scale by their own pool.
        acquire_timeout: seconds that a call may queue for an engine before it is told to come back.
    """

    name: str = "policy"
    host: str = "127.0.0.1"
    port: int = 8000
    keys: tuple[str, ...] = ()
    http_replicas: int = 1
    acquire_timeout: float | None = 600.0


class PoolServer:
    """One HTTP replica."""

    def __init__(self, model: ModelSpec, manager: ManagerHandle, options: ServeOptions) -> None:
        self._model = model
        self._manager = manager
        self._options = options
        self._format = ChatFormat.load(model.path, family=model.family, options=model.chat_options)
        self._starting = asyncio.Lock()
        self._endpoint: PoolEndpoint | None = None

    async def __call__(self, http: Request) -> Response:
        """Answer one HTTP request."""
        from starlette.responses import JSONResponse, StreamingResponse

        path = http.url.path.strip("/")
        name = path.removeprefix("v1/")
        dialect = ROUTES.get(name, ROUTES["chat/completions"])
        try:
            if name == "health":
                return JSONResponse({"status": "ok"})
            if self._options.keys and not authorized(http.headers, list(self._options.keys)):
                raise RequestRefused("no key, or a wrong one", status=401, code="invalid_api_key")
            if name == "models":
                return JSONResponse({"object": "list", "data": [self._card()]})
            if name not in ROUTES:
                known = ", ".join(f"/v1/{route}" for route in (*ROUTES, "models"))
                raise RequestRefused(f"there is no /{path}; there are: {known}", status=404, code="not_found")
            request = dialect.read(json_body(await http.body()))
            endpoint = await self._started()
            if not request.stream:
                return JSONResponse(dialect.write(request, await endpoint.answer(request, None)))
            stream = events(dialect, request, endpoint.answer)
            first = await anext(stream)  # what is refused has no stream
        except RequestRefused as error:
            return JSONResponse(dialect.refuse(error), status_code=error.status, headers=refusal_headers(error))
        return StreamingResponse(_after(first, stream), media_type="text/event-stream")

    async def _started(self) -> PoolEndpoint:
        async with self._starting:
            if self._endpoint is None:
                client = await ResourceClient.connect(self._manager)
                limit = self._options.acquire_timeout
                self._endpoint = PoolEndpoint(client, self._model, self._format, acquire_timeout=limit)
            return self._endpoint

    def _card(self) -> dict[str, Any]:
        return {"id": self._options.name, "object": "model", "created": 0, "owned_by": "agentfly"}


async def _after(first: str, rest: AsyncIterator[str]) -> AsyncIterator[bytes]:
    try:
        yield first.encode("utf-8", "replace")
        async for item in rest:
            yield item.encode("utf-8", "replace")
    finally:
        await rest.aclose()  # type: ignore[attr-defined]


@asynccontextmanager
async def serving(model: ModelSpec, manager: ManagerHandle, options: ServeOptions) -> AsyncIterator[str]:
    """Serve a pool for the block; at its end Serve is shut down.

    Yields:
        The base URL for clients.

    Raises:
        ConfigError: the extra isn't installed, or the engine gives no tokens.
    """
    try:
        from ray import serve
    except ImportError as error:
        raise ConfigError("serving needs Ray Serve: pip install agentfly-rl[serve]") from error
    if model.speaks != "tokens":
        raise ConfigError(f"engine {model.engine!r} is an endpoint already: serve one that has the model itself")
    http = {"host": options.host, "port": options.port}
    deployment = serve.deployment(
        num_replicas=options.http_replicas, max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0}
    )(PoolServer)
    try:
        await asyncio.to_thread(serve.start, proxy_location="HeadOnly", http_options=http)
        app = deployment.bind(model, manager, options)
        await asyncio.to_thread(serve.run, app, name=APP_NAME, route_prefix="/")
        yield f"http://{options.host}:{options.port}/v1"
    finally:
        await asyncio.to_thread(serve.shutdown)
