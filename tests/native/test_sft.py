from __future__ import annotations

from pathlib import Path

import pytest
from agentfly.backends.native.optimizer import OptimizerOptions
from agentfly.backends.native.policy import Policy
from agentfly.backends.native.sft import WarmUpOptions, encode_conversation, warm_up

from agentfly.errors import ConfigError
from agentfly.models.engine import Message
from agentfly.models.tiny import build_model, build_tokenizer
from agentfly.rollout.chat_format import ChatFormat

TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}},
    }
]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
CONVERSATION: list[Message] = [
    {"role": "user", "content": "What is 1+2?"},
    {"role": "assistant", "content": CALL},
    {"role": "tool", "content": "3"},
    {"role": "assistant", "content": "It is 3."},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    texts = [message["content"] for message in CONVERSATION] + ["# Tools\n\nYou may call one or more functions"]
    build_tokenizer(texts * 5, 400, path)
    build_model(path, hidden=16, layers=1, heads=2, max_context=1024, init_std=0.3)
    return path


@pytest.mark.parametrize("family", ["qwen3", "generic"])
def test_a_conversation_is_the_tokens_of_its_rendering_with_the_assistant_masked_in(folder: Path, family: str) -> None:
    chat = ChatFormat.load(str(folder), family=family)
    segment = encode_conversation(chat, CONVERSATION, TOOLS)
    text = chat.decode(segment.ids)
    assert text.endswith(
        f"<|im_start|>user\nWhat is 1+2?<|im_end|>\n<|im_start|>assistant\n{CALL}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\nIt is 3.<|im_end|>"
    )
    assert chat.decode(segment.ids[segment.mask]) == f"{CALL}<|im_end|>It is 3.<|im_end|>"


def test_a_conversation_needs_an_assistant(folder: Path) -> None:
    chat = ChatFormat.load(str(folder), family="qwen3")
    with pytest.raises(ConfigError, match="without an assistant"):
        encode_conversation(chat, CONVERSATION[:1], TOOLS)


def test_warm_up_learns_what_the_assistant_said(folder: Path) -> None:
    chat = ChatFormat.load(str(folder), family="qwen3")
    segment = encode_conversation(chat, CONVERSATION, TOOLS)
    policy = Policy.load(folder, device="cpu")
    losses: list[float] = []
    options = WarmUpOptions(steps=30, batch_size=2, optimizer=OptimizerOptions(lr=2e-2))
    last = warm_up(policy, [segment], options, on_step=lambda step, loss: losses.append(loss))
    assert len(losses) == 30
    assert losses[0] > 3
    assert last < 0.1


def test_the_same_seed_warms_up_the_same(folder: Path) -> None:
    chat = ChatFormat.load(str(folder), family="qwen3")
    segments = [encode_conversation(chat, CONVERSATION[: 2 * count], TOOLS) for count in (1, 2)]

    def final(seed: int) -> float:
        return warm_up(Policy.load(folder, device="cpu"), segments, WarmUpOptions(steps=3, batch_size=1, seed=seed))

    assert final(0) == final(0)
    assert len({final(seed) for seed in range(6)}) > 1


def test_nothing_to_learn_from_is_an_error(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no conversations"):
        warm_up(Policy.load(folder, device="cpu"), [], WarmUpOptions(steps=1))
