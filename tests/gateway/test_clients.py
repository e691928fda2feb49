"""Real clients against the gateway: each runs unchanged, and what it made the policy say is trained exactly."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import psutil
import pytest
from gateway.gateways import ADD, adds, gateway
from rollout.tiny_tokenizer import build_folder

from agentfly.agent.harness import run_command
from agentfly.rollout.gateway.session import CaptureSession

CHAT_TOOLS: list[Any] = [{"type": "function", "function": ADD}]
Calls = Sequence[tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_folder(tmp_path_factory.mktemp("tokenizer"))


def check_one_segment(session: CaptureSession, calls: Calls) -> None:
    """All calls are one segment; the mask is on exactly what was sampled."""
    (segment,) = session.capture.segments()
    assert segment.ids.tolist() == calls[-1][0] + calls[-1][1]
    assert segment.ids[segment.mask].tolist() == [token for _, sampled in calls for token in sampled]
    assert session.drift() is False


async def chat_agent(client: openai.AsyncOpenAI, *, stream: bool) -> str:
    """An agent as anybody writes it; its history is what the client gave it."""
    messages: list[Any] = [{"role": "user", "content": "1 + 2?"}]
    while True:
        if stream:
            async with client.chat.completions.stream(model="m", messages=messages, tools=CHAT_TOOLS) as events:
                async for _ in events:
                    pass
                answer = await events.get_final_completion()
        else:
            answer = await client.chat.completions.create(model="m", messages=messages, tools=CHAT_TOOLS)
        said = answer.choices[0].message
        messages.append(said.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not said.tool_calls:
            return said.content or ""
        for call in said.tool_calls:
            given = json.loads(call.function.arguments)  # type: ignore[union-attr]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(given["a"] + given["b"])})


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_chat_completions(folder: str, stream: bool) -> None:
    async with gateway(folder, adds) as (session, url, key, calls):
        async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
            assert await chat_agent(client, stream=stream) == "The sum is 3."
        assert len(calls) == 2
        check_one_segment(session, calls)
        assert [message["role"] for message in session.messages] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_responses(folder: str, stream: bool) -> None:
    tools: list[Any] = [{"type": "function", **ADD}]
    history: list[Any] = [{"role": "user", "content": "1 + 2?"}]
    async with (
        gateway(folder, adds) as (session, url, key, calls),
        openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client,
    ):
        for _ in range(2):
            if stream:
                async with client.responses.stream(model="m", input=history, tools=tools) as events:
                    async for _event in events:
                        pass
                    answer: Any = await events.get_final_response()
            else:
                answer = await client.responses.create(model="m", input=history, tools=tools)
            for item in answer.output:
                history.append(item.model_dump(exclude_none=True, exclude={"parsed_arguments"}))
                if item.type == "function_call":
                    history.append({"type": "function_call_output", "call_id": item.call_id, "output": "3"})
        assert answer.output_text == "The sum is 3."
        assert answer.usage.output_tokens == len(calls[-1][1])
        check_one_segment(session, calls)


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_messages(folder: str, stream: bool) -> None:
    tools: list[Any] = [{"name": "add", "description": "Add.", "input_schema": ADD["parameters"]}]
    messages: list[Any] = [{"role": "user", "content": "1 + 2?"}]
    async with (
        gateway(folder, adds) as (session, url, key, calls),
        anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client,
    ):
        for _ in range(2):
            asked: dict[str, Any] = {"model": "m", "max_tokens": 300, "system": "Be kind.", "tools": tools}
            if stream:
                async with client.messages.stream(messages=messages, **asked) as events:
                    answer: Any = await events.get_final_message()
            else:
                answer = await client.messages.create(messages=messages, **asked)
            messages.append({"role": "assistant", "content": [block.model_dump() for block in answer.content]})
            if answer.stop_reason == "tool_use":
                (use,) = [block for block in answer.content if block.type == "tool_use"]
                assert use.input == {"a": 1, "b": 2}
                messages.append(
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "3"}]}
                )
        assert (answer.content[0].text, answer.stop_reason) == ("The sum is 3.", "end_turn")
        check_one_segment(session, calls)


async def test_an_agents_sdk(folder: str) -> None:
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )

    set_tracing_disabled(True)

    @function_tool
    def add(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        async with (
            gateway(folder, adds) as (session, url, key, calls),
            openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client,
        ):
            agent = Agent(name="a", instructions="Be kind.", tools=[add], model=kind("m", client))
            result = await Runner.run(agent, "1 + 2?")
            assert result.final_output == "The sum is 3."
            check_one_segment(session, calls)


COMMAND = """
import json, sys, openai
client = openai.OpenAI(max_retries=0)
messages = [{"role": "user", "content": sys.argv[1]}]
answer = client.chat.completions.create(model="m", messages=messages)
print(answer.choices[0].message.content)
"""


async def test_a_command_line_agent(folder: str, tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(COMMAND)
    async with gateway(folder, lambda *_: "hello") as (session, url, key, calls):
        assert await run_command([sys.executable, str(script), "hi"], url, key) == "hello\n"
        check = session.capture.segments()
        assert len(check) == len(calls) == 1
    script.write_text("import sys; sys.exit('no luck')")
    with pytest.raises(RuntimeError, match="exit code 1: no luck"):
        await run_command([sys.executable, str(script)], "http://x/v1", "k")


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_a_cancelled_command_is_killed_with_its_children(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        "import subprocess, sys, os, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
        f"open({str(tmp_path / 'pid')!r} + '.new', 'w').write(str(child.pid))\n"
        f"os.rename({str(tmp_path / 'pid')!r} + '.new', {str(tmp_path / 'pid')!r})\n"
        "time.sleep(100)\n"
    )
    running = asyncio.ensure_future(run_command([sys.executable, str(script)], "u", "k"))
    while not (tmp_path / "pid").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    child = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(10):
        while runs(child):
            await asyncio.sleep(0.01)


async def test_what_cant_be_answered_is_refused_in_words(folder: str) -> None:
    async with gateway(folder, adds, max_calls=1) as (session, url, key, _), httpx.AsyncClient(base_url=url) as http:
        auth = {"Authorization": f"Bearer {key}"}
        hello = [{"role": "user", "content": "hi"}]

        async def refused(
            body: Any, headers: dict[str, str] = auth, path: str = "/chat/completions"
        ) -> tuple[int, str]:
            answer = await http.post(path, json=body, headers=headers)
            return answer.status_code, json.dumps(answer.json())

        assert (await refused({"messages": hello}, {}))[0] == 401
        assert (await refused({"messages": hello}, {"x-api-key": "wrong"}, "/messages"))[0] == 401
        for body, told in (
            ([], "must be a JSON object"),
            ({"messages": []}, "at least one message"),
            ({"messages": hello, "n": 2}, "n must be 1"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
            ({"messages": hello, "tool_choice": "required"}, "tool_choice"),
            ({"messages": hello, "response_format": {"type": "json_object"}}, "response_format"),
            ({"messages": hello, "temperature": "hot"}, "temperature must be a number"),
            ({"messages": [{"role": "wizard"}]}, "wizard"),
        ):
            status, message = await refused(body)
            assert (status, told in message) == (400, True), message
        assert (await refused({"input": "hi", "previous_response_id": "x"}, path="/responses"))[0] == 400
        assert (await http.post("/nothing", headers=auth)).status_code == 404
        assert session.capture.calls == 0
        assert (await http.post("/chat/completions", json={"messages": hello}, headers=auth)).status_code == 200
        assert "1 calls" in (await refused({"messages": hello}))[1]
        assert session.limit == "max_turns"


async def test_a_conversation_longer_than_the_context_ends_the_rollout(folder: str) -> None:
    async with gateway(folder, adds, max_context=50) as (session, url, key, _):
        client = openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0)
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "long " * 100}])
        assert caught.value.code == "context_length_exceeded"
        assert session.limit == "context_full"


async def test_stop_texts_logprobs_and_token_ids(folder: str) -> None:
    async with gateway(folder, lambda *_: "one STOP two") as (session, url, key, calls):
        client = openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0)
        answer: Any = await client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "hi"}],
            stop=["STOP"],
            logprobs=True,
            extra_body={"return_token_ids": True},
        )
        (choice,) = answer.choices
        assert (choice.message.content, choice.finish_reason) == ("one ", "stop")
        assert (choice.token_ids, answer.prompt_token_ids) == (calls[0][1], calls[0][0])
        assert "".join(each.token for each in choice.logprobs.content).startswith("one STOP")
        assert session.capture.segments()[0].mask.sum() == len(calls[0][1])
