"""The endpoint on Ray Serve, by the real clients over real HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from rollout.tiny_tokenizer import build_folder

from agentfly.errors import ConfigError
from agentfly.models.spec import ModelSpec
from agentfly.resources import ResourceClient
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.session import resource_session
from agentfly.serving.app import ServeOptions, serving

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
TOOL: Any = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_folder(tmp_path_factory.mktemp("tokenizer"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def talker() -> Callable[[str, int, int], str]:
    """A script that travels by value."""

    def say(prompt: str, turn: int, seed: int) -> str:
        if "add" in prompt:
            return 'Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
        return "one two STOP three" if "hello" in prompt else "other"

    return say


@asynccontextmanager
async def served(folder: str, *, seconds_per_token: float = 0.0, **changes: Any) -> AsyncIterator[tuple[str, Any, Any]]:
    """URL, spec and a client of the pool."""
    script = {"script": talker(), "seconds_per_token": seconds_per_token}
    spec = ModelSpec(engine="scripted", path=folder, options=script, **changes)
    options = ServeOptions(name="tiny", port=free_port(), keys=("secret",))
    async with resource_session("serve") as manager, serving(spec, manager, options) as url:
        client = await ResourceClient.connect(manager)
        try:
            yield url, spec, client
        finally:
            await client.close()


@pytest.mark.slow
async def test_real_clients(folder: str, ray_cluster: None) -> None:
    format = ChatFormat.load(folder)
    async with served(folder) as (url, _, _), openai.AsyncOpenAI(base_url=url, api_key="secret") as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        answer: Any = await client.chat.completions.create(
            model="tiny", messages=HELLO, stop="STOP", logprobs=True, extra_body={"return_token_ids": True}
        )
        (choice,) = answer.choices
        assert (choice.message.content, choice.finish_reason) == ("one two ", "stop")
        assert answer.prompt_token_ids == format.render(HELLO, [])
        assert format.decode(choice.token_ids).startswith("one two STOP")
        assert len(choice.logprobs.content) == len(choice.token_ids) == answer.usage.completion_tokens

        async with client.chat.completions.stream(model="tiny", messages=HELLO, stop="STOP") as stream:
            pieces = [each.delta async for each in stream if each.type == "content.delta"]
        assert "".join(pieces) == "one two "
        assert len(pieces) > 2

        called = await client.chat.completions.create(model="tiny", messages=HELLO, tools=[TOOL])
        assert called.choices[0].finish_reason == "tool_calls"
        assert called.choices[0].message.tool_calls[0].function.arguments == '{"a": 1}'  # type: ignore[index,union-attr]
        async with client.chat.completions.stream(model="tiny", messages=HELLO, tools=[TOOL]) as stream:
            streamed = await stream.get_final_completion()
        assert streamed.choices[0].message.content == called.choices[0].message.content
        assert streamed.choices[0].message.tool_calls[0].function.arguments == '{"a": 1}'  # type: ignore[index]

        text = await client.completions.create(model="tiny", prompt="hello", max_tokens=100, logprobs=0)
        assert text.choices[0].text == "one two STOP three"
        by_ids = await client.completions.create(model="tiny", prompt=format.encode("hello"), max_tokens=3)
        assert by_ids.choices[0].finish_reason == "length"
        parts = await client.completions.create(model="tiny", prompt="hello", max_tokens=100, stream=True)
        assert "".join([part.choices[0].text async for part in parts]) == "one two STOP three"

        response = await client.responses.create(model="tiny", input="hello")
        assert response.output_text == "one two STOP three"
        async with anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key="secret") as other:
            message = await other.messages.create(model="tiny", max_tokens=100, messages=HELLO)
            assert message.content[0].text == "one two STOP three"  # type: ignore[union-attr]

        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="guess").models.list()
        with pytest.raises(openai.BadRequestError, match="n must be 1"):
            await client.chat.completions.create(model="tiny", messages=HELLO, n=2)
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="tiny", input="hello")


@pytest.mark.slow
async def test_a_full_pool_says_when_to_come_back_and_who_leaves_makes_room(folder: str, ray_cluster: None) -> None:
    async with served(folder, seconds_per_token=30.0, max_concurrency=1, max_waiting=1) as (url, spec, pool):
        headers = {"Authorization": "Bearer secret"}

        async def running() -> float:
            return float(sum(stats["running"] for stats in await pool.broadcast(spec, "stats")))

        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            body = {"model": "tiny", "messages": HELLO}
            first = asyncio.ensure_future(http.post("/chat/completions", json=body))
            async with asyncio.timeout(60):
                while await running() < 1:
                    await asyncio.sleep(0.02)
            second = asyncio.ensure_future(http.post("/chat/completions", json=body))
            async with asyncio.timeout(60):
                while (await pool.stats())[spec.name].waiting < 1:
                    await asyncio.sleep(0.02)
            refused = await http.post("/chat/completions", json=body)
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) >= 1
            # Both leave; the engine is told, and nothing runs any more.
            for call in (second, first):
                call.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
            async with asyncio.timeout(60):
                while await running() > 0 or (await pool.stats())[spec.name].leased > 0:
                    await asyncio.sleep(0.02)


async def test_what_cant_be_served_is_told_first() -> None:
    spec = ModelSpec(engine="openai", path="m")
    with pytest.raises(ConfigError, match="is an endpoint already"):
        async with serving(spec, None, ServeOptions()):
            pass


def test_a_pool_of_engines_grows_between_its_limits(folder: str) -> None:
    spec = ModelSpec(path=folder, replicas=2, max_replicas=4, max_concurrency=8)
    assert (spec.min_size, spec.max_size) == (16, 32)
    with pytest.raises(ConfigError, match="max_replicas is 1, below"):
        ModelSpec(path=str(Path(folder)), replicas=2, max_replicas=1)
