"""An agent is evaluated against a served model: the same agent, tools and rewards, over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from models.openai_server import Reply, chat_server, completion

from agentfly.agent import Agent, reward, tool
from agentfly.models.spec import ModelSpec
from agentfly.rollout.api import arollout


def calculating_agent() -> Agent:
    """Made of local functions, which travel by value: Ray's workers can't import the helpers of tests."""

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first.
            b: the second.
        """
        return a + b

    @reward
    def exact(final_response: str, answer: str) -> float:
        return float(final_response.strip() == answer)

    return Agent(tools=[add], reward=exact)


@pytest.mark.usefixtures("ray_cluster")
async def test_an_agent_is_evaluated_against_a_served_model() -> None:
    calling = completion(None, ("add", '{"a": 1, "b": 2}'), ("add", '{"a": '), finish="tool_calls")
    limited = Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": "0.01"})
    async with chat_server(limited, calling, completion("3"), completion("four")) as server:
        options: dict[str, Any] = {"base_url": server.url, "api_key_env": "NO_SUCH_KEY"}
        model = ModelSpec(engine="openai", path="m", options=options, max_concurrency=1)
        tasks = [{"prompt": "1 + 2?", "answer": "3"}] * 2
        right, wrong = await arollout(calculating_agent(), tasks, model)
    assert (right.reward, right.turns, right.tool_calls, right.tool_errors) == (1.0, 2, 2, 1)
    assert [message["role"] for message in right.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert right.messages[2]["content"] == "3"
    assert "not valid JSON" in right.messages[3]["content"]
    assert (wrong.reward, wrong.turns) == (0.0, 1)
    assert not right.trainable
    assert right.segments == []
    sent = server.requests[2]["messages"]
    assert [message.get("tool_call_id") for message in sent[-2:]] == ["call_0", "call_1"]
