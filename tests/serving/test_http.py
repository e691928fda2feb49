"""The endpoint's HTTP without a cluster: the same server, on an engine that is lent at once or not at all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from rollout.tiny_tokenizer import build_folder
from starlette.applications import Starlette
from starlette.routing import Route

from agentfly.errors import ModelError, PoolSaturated, StartFailed
from agentfly.models.scripted import ScriptedEngine
from agentfly.models.spec import ModelSpec
from agentfly.serving.app import PoolServer, ServeOptions
from agentfly.serving.endpoint import PoolEndpoint

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def say(prompt: str, turn: int, seed: int) -> str:
    if "fail" in prompt:
        raise ModelError("out of memory")
    return "one two STOP three"


class Lent:
    """A pool of one engine; counts leases, or refuses them."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.held = 0
        self.refusal: Exception | None = None

    @property
    def resource(self) -> ScriptedEngine:
        return self.engine

    async def acquire(self, spec: Any, *, timeout: float | None) -> Lent:
        if self.refusal is not None:
            raise self.refusal
        self.held += 1
        return self

    def release(self) -> None:
        self.held -= 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_folder(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
async def pool(folder: str) -> Lent:
    engine = ScriptedEngine(folder, say, max_context=500)
    await engine.start()
    return Lent(engine)


@pytest.fixture
async def http(folder: str, pool: Lent) -> AsyncIterator[httpx.AsyncClient]:
    spec = ModelSpec(engine="scripted", path=folder, options={"script": say})
    server = PoolServer(spec, None, ServeOptions(name="tiny", keys=("secret",)))
    lent: Any = pool
    server._endpoint = PoolEndpoint(lent, spec, server._format, acquire_timeout=1.0)
    app = Starlette(routes=[Route("/{path:path}", server.__call__, methods=["GET", "POST"])])
    transport = httpx.ASGITransport(app=app)
    headers = {"Authorization": "Bearer secret"}
    async with httpx.AsyncClient(transport=transport, base_url="http://pool/v1", headers=headers) as client:
        yield client


async def test_clients_are_answered_whole_and_streamed(http: httpx.AsyncClient, pool: Lent) -> None:
    client = openai.AsyncOpenAI(base_url="http://pool/v1", api_key="secret", http_client=http, max_retries=0)
    assert [model.id async for model in client.models.list()] == ["tiny"]
    answer = await client.chat.completions.create(model="tiny", messages=HELLO, stop="STOP", logprobs=True)
    assert answer.choices[0].message.content == "one two "
    chunks = await client.chat.completions.create(
        model="tiny", messages=HELLO, stop="STOP", stream=True, stream_options={"include_usage": True}
    )
    told = [chunk async for chunk in chunks]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in told if chunk.choices) == "one two "
    assert told[-1].usage is not None
    assert told[-1].usage.completion_tokens == answer.usage.completion_tokens  # type: ignore[union-attr]
    text = await client.completions.create(model="tiny", prompt="hello", max_tokens=100, stream=True)
    assert "".join([part.choices[0].text async for part in text]) == "one two STOP three"
    response = await client.responses.create(model="tiny", input="hello")
    assert response.output_text == "one two STOP three"
    assert pool.held == 0


async def test_a_full_pool_a_broken_one_and_a_failing_engine(http: httpx.AsyncClient, pool: Lent) -> None:
    body = {"messages": HELLO}
    pool.refusal = PoolSaturated("the queue is full", 9, 3.4)
    refused = await http.post("/chat/completions", json=body)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "3")
    streamed = await http.post("/chat/completions", json={**body, "stream": True})
    assert streamed.status_code == 429
    pool.refusal = StartFailed("no model there")
    assert (await http.post("/chat/completions", json=body)).status_code == 503
    pool.refusal = None
    failed = await http.post("/chat/completions", json={"messages": [{"role": "user", "content": "fail"}]})
    assert (failed.status_code, failed.headers["x-should-retry"]) == (503, "false")
    assert pool.held == 0


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/chat/completions", {"messages": HELLO, "temperature": -1}, 400, "temperature is -1"),
        ("/chat/completions", {"messages": HELLO, "max_tokens": 0}, 400, "max_tokens is 0"),
        ("/chat/completions", {"messages": [{"role": "user", "content": "x " * 999}]}, 400, "maximum context length"),
        ("/completions", {"prompt": ""}, 400, "the prompt is empty"),
        ("/completions", {"prompt": ["a", "b"]}, 400, "several calls"),
        ("/completions", {"prompt": "a", "echo": True}, 400, "echo is not supported"),
        ("/embeddings", {}, 404, "there is no /v1/embeddings"),
        ("/messages", {"messages": [{"role": "king"}]}, 400, "'king'"),
    ],
)
async def test_what_is_wrong_is_told(
    http: httpx.AsyncClient, pool: Lent, path: str, body: Any, status: int, told: str
) -> None:
    answer = await http.post(path, json=body)
    assert (answer.status_code, told in json.dumps(answer.json())) == (status, True), answer.text
    assert pool.held == 0


async def test_without_a_key_nothing_is_told(http: httpx.AsyncClient) -> None:
    for headers in ({"Authorization": "Bearer guess"}, {"Authorization": ""}, {"x-api-key": "guess"}):
        assert (await http.get("/models", headers=headers)).status_code == 401
    assert (await http.get("/health", headers={"Authorization": ""})).status_code == 200
