"""A tiny model that calls a tool and then answers, and its agent."""

from __future__ import annotations

import random
from pathlib import Path

from agentfly.backends.native.optimizer import OptimizerOptions
from agentfly.backends.native.policy import Policy
from agentfly.backends.native.sft import WarmUpOptions, encode_conversation, warm_up

from agentfly.agent import Agent, reward, tool
from agentfly.models.engine import Message
from agentfly.models.tiny import build_model, build_tokenizer
from agentfly.rollout.chat_format import ChatFormat

CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


def looking_agent() -> Agent:
    """Made of local functions, which travel by value: Ray's workers can't import the helpers of tests."""

    @tool
    def look() -> str:
        """Look."""
        return "a digit"

    @reward
    def high(final_response: str) -> float:
        digit = final_response.strip()
        return int(digit) / 9 if digit.isdigit() and len(digit) == 1 else 0.0

    return Agent(tools=[look], reward=high, max_turns=3, max_tokens=32)


def prompt(number: int) -> str:
    """Of a task."""
    return f"Number {number % 10}?"


def make_talker(folder: Path, steps: int = 100) -> str:
    """A Qwen3 of a hundred thousand weights that calls `look` and then says some digit."""
    rng = random.Random(0)
    tools = [tool.spec for tool in looking_agent().tools]
    traces = [_trace(rng) for _ in range(64)]
    build_tokenizer([], 300, folder)
    plain = ChatFormat.load(str(folder), family="qwen3")
    build_tokenizer([plain.decode(encode_conversation(plain, t, tools).ids.tolist()) for t in traces], 512, folder)
    chat = ChatFormat.load(str(folder), family="qwen3")
    # Heads of 32: vLLM's attention on CPUs takes multiples of that.
    build_model(folder, hidden=64, layers=2, heads=2, kv_heads=2, max_context=512, rope_theta=100.0)
    policy = Policy.load(folder, device="cpu")
    options = OptimizerOptions(lr=5e-3, schedule="linear", warmup_steps=10, final_fraction=0.0)
    lessons = [encode_conversation(chat, one, tools) for one in traces]
    warm_up(policy, lessons, WarmUpOptions(steps=steps, batch_size=16, optimizer=options))
    policy.model.save_pretrained(folder)
    return str(folder)


def _trace(rng: random.Random) -> list[Message]:
    return [
        {"role": "user", "content": prompt(rng.randrange(10))},
        {"role": "assistant", "content": CALL},
        {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": "a digit"},
        {"role": "assistant", "content": str(rng.randrange(10))},
    ]
