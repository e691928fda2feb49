"""The engine of served models, against a real server of the protocol."""

from __future__ import annotations

import asyncio
import builtins
import logging
import pickle
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from models.openai_server import ChatServer, Reply, chat_server, completion

from agentfly.errors import BudgetSpent, ConfigError, ModelError
from agentfly.models.engine import Message, Sampling
from agentfly.models.openai import OpenAIEngine

KEY = "sk-very-secret"
HELLO: list[Message] = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}]


@asynccontextmanager
async def engine_of(server: ChatServer, **options: Any) -> AsyncIterator[OpenAIEngine]:
    engine = OpenAIEngine("m", base_url=server.url, api_key_env="TEST_CHAT_KEY", **options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_CHAT_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "another-key")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


async def test_a_conversation_with_tools() -> None:
    first = completion(None, ("add", '{"a": 1}'), ("add", "{bad"), finish="tool_calls", reasoning_content="hm")
    async with chat_server(first, completion("2 ü🙂"), key=KEY) as server, engine_of(server) as engine:
        said = await engine.chat(HELLO, TOOLS, Sampling(max_tokens=9, temperature=0.5, top_p=0.9, seed=2**64 - 1))
        assert said.finish_reason == "tool_calls"
        assert said.usage == {"prompt_tokens": 11, "completion_tokens": 7}
        assert said.message == {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
                {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{bad"}},
            ],
        }
        answers: list[Message] = [
            {"role": "tool", "content": "2\ud800", "tool_call_id": "call_0"},
            {"role": "tool", "content": "not valid", "tool_call_id": "call_1"},
        ]
        last = await engine.chat([*HELLO, said.message, *answers], TOOLS, Sampling())
        assert (last.message, last.finish_reason) == ({"role": "assistant", "content": "2 ü🙂"}, "stop")
        assert await engine.stats() == {"requests": 2, "failed": 0, "prompt_tokens": 22, "completion_tokens": 14}
    sent, again = server.requests
    assert sent == {
        "model": "m",
        "messages": HELLO,
        "tools": TOOLS,
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 2**63 - 1,
    }
    assert set(again) == {"model", "messages", "tools", "max_tokens", "temperature"}
    _, assistant, one, _ = again["messages"]
    assert "reasoning_content" not in assistant
    assert one["content"] == "2?"
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == ['{"a": 1}', "{}"]


async def test_options_of_an_endpoint() -> None:
    thought: Message = {"role": "assistant", "content": "a", "reasoning_content": "hm"}
    options = {"limit_field": "max_completion_tokens", "extra_body": {"top_k": 5}, "send_reasoning": True}
    async with chat_server(completion("a")) as server, engine_of(server, **options) as engine:
        await engine.chat([*HELLO, thought, *HELLO], [], Sampling(max_tokens=9))
    (sent,) = server.requests
    assert sent["max_completion_tokens"] == 9
    assert "max_tokens" not in sent
    assert "tools" not in sent
    assert sent["top_k"] == 5
    assert sent["messages"][1] == thought


async def test_a_rate_limit_is_waited_for_as_the_server_asks() -> None:
    limited = Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": "0.2"})
    async with chat_server(limited, limited, completion("a")) as server, engine_of(server, max_retries=2) as engine:
        started = time.monotonic()
        assert (await engine.chat(HELLO, [], Sampling())).message["content"] == "a"
        # The client's own first pauses would be 0.5 s and 1 s.
        assert time.monotonic() - started >= 0.4
        assert len(server.requests) == 3


async def test_server_errors_are_retried_and_then_one_line() -> None:
    broken = Reply("<html>\n502 Bad\nGateway</html>", 502, {"Retry-After": "0.01", "Content-Type": "text/html"})
    async with chat_server(*[broken] * 3) as server, engine_of(server, max_retries=2) as engine:
        with pytest.raises(ModelError, match=r"model m at http://127.0.0.1.*502") as caught:
            await engine.chat(HELLO, [], Sampling())
        assert "\n" not in str(caught.value)
        assert len(server.requests) == 3
        assert (await engine.stats())["failed"] == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply('{"id": "x", "choices": [{"mess'),
        Reply("not JSON at all"),
        Reply("<html>welcome</html>", headers={"Content-Type": "text/html"}),
        Reply({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}),
        Reply({"id": "x", "choices": None}),
        Reply({"choices": [{"message": None}]}),
        Reply("[]"),
        Reply("null"),
    ],
)
async def test_a_malformed_answer_is_a_model_error(reply: Reply) -> None:
    async with chat_server(reply) as server, engine_of(server, max_retries=0) as engine:
        with pytest.raises(ModelError, match="model m at") as caught:
            await engine.chat(HELLO, [], Sampling())
        assert "\n" not in str(caught.value)


async def test_a_slow_server_is_given_up() -> None:
    slow = Reply({}, never=True)
    async with chat_server(slow) as server, engine_of(server, timeout=0.2, max_retries=0) as engine:
        with pytest.raises(ModelError, match="timed out"):
            await engine.chat(HELLO, [], Sampling())


async def test_a_cancelled_call_leaves_nothing_running() -> None:
    async with chat_server(Reply({}, never=True)) as server, engine_of(server) as engine:
        call = asyncio.create_task(engine.chat(HELLO, [], Sampling()))
        await server.waiting.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(server.abandoned.wait(), 5)


async def test_an_endpoint_that_is_not_there() -> None:
    async with chat_server() as server:
        pass
    async with engine_of(server, max_retries=0) as engine:
        with pytest.raises(ModelError, match="Connection error"):
            await engine.chat(HELLO, [], Sampling())


@pytest.mark.parametrize(
    "error",
    [
        {"message": "This model's maximum context length is 10 tokens.", "code": 400},
        {"message": "too long", "code": "context_length_exceeded"},
    ],
)
async def test_a_conversation_past_the_context_is_cut_not_failed(error: dict[str, Any]) -> None:
    async with chat_server(Reply({"error": error}, 400)) as server, engine_of(server) as engine:
        said = await engine.chat(HELLO, [], Sampling())
    assert (said.message, said.finish_reason) == ({"role": "assistant", "content": ""}, "length")


async def test_another_bad_request_is_a_model_error_at_once() -> None:
    wrong = Reply({"error": {"message": "no such model"}}, 404)
    async with chat_server(wrong) as server, engine_of(server) as engine:
        with pytest.raises(ModelError, match="no such model"):
            await engine.chat(HELLO, [], Sampling())
        assert len(server.requests) == 1


async def test_the_key_is_in_no_error_log_or_pickle(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with chat_server(key="the right one") as server, engine_of(server) as engine:
        with pytest.raises(ModelError, match=r"Incorrect API key provided: \*\*\*") as caught:
            await engine.chat(HELLO, [], Sampling())
        assert server.authorization == [f"Bearer {KEY}"]
        assert KEY not in str(caught.value)
        assert KEY not in caplog.text
        assert KEY not in repr(engine)
        data = pickle.dumps(engine)
        assert KEY.encode() not in data
        twin: OpenAIEngine = pickle.loads(data)
    with pytest.raises(ModelError, match="not started"):
        await twin.chat(HELLO, [], Sampling())


async def test_the_key_of_openai_goes_to_no_other_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_CHAT_KEY")
    async with chat_server(completion("a")) as server, engine_of(server) as engine:
        await engine.chat(HELLO, [], Sampling())
    assert server.authorization == ["Bearer none"]


async def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY holds no key"):
        await OpenAIEngine("m").start()


def test_a_model_has_a_name() -> None:
    with pytest.raises(ConfigError, match="model's name"):
        OpenAIEngine("")


async def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "openai":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install agentfly-rl\[openai\]"):
        await OpenAIEngine("m").start()


async def test_limits_hold_for_all_conversations_together() -> None:
    limited = Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": "0.3"})
    limits = {"concurrency": 1, "price_per_call": 0.4, "budget": 1.0}
    async with (
        chat_server(limited, completion("a"), completion("b")) as server,
        engine_of(server, limits=limits) as engine,
    ):
        started = time.monotonic()
        said = await asyncio.gather(*(engine.chat(HELLO, [], Sampling()) for _ in range(2)))
        assert sorted(str(each.message["content"]) for each in said) == ["a", "b"]
        assert time.monotonic() - started >= 0.3
        usage = await engine.api_usage()
        assert (usage.calls, usage.refusals, usage.cost) == (2, 1, pytest.approx(0.8))
        assert usage.output_tokens > 0
        with pytest.raises(BudgetSpent, match="model m has cost 0.8 of its budget of 1"):
            await engine.chat(HELLO, [], Sampling())
        assert len(server.requests) == 3


async def test_with_limits_a_server_error_stops_all_for_a_while_and_is_tried_again() -> None:
    broken = Reply("no", 502)
    async with (
        chat_server(broken, completion("a")) as server,
        engine_of(server, limits={"first_backoff": 0.05}) as engine,
    ):
        assert (await engine.chat(HELLO, [], Sampling())).message["content"] == "a"
        assert (await engine.api_usage()).refusals == 1
        assert pickle.loads(pickle.dumps(engine)) is not None


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"requests": 5}, "model m: limits have no 'requests'; there are: concurrency, requests_per_minute"),
        ({"budget": "much"}, "model m: budget is 'much', it must be a number"),
        ({"budget": -1}, "model m: budget is -1, it must be positive"),
    ],
)
def test_wrong_limits_are_one_line(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OpenAIEngine("m", limits=limits)
