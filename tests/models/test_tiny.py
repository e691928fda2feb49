"""The tiny model maker: any text round-trips, the chat format is Qwen3's, seeds reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from renderers import create_renderer
from renderers.configs import config_from_name
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from agentfly.errors import ConfigError
from agentfly.models.tiny import MARKUP_TOKENS, SPECIAL_TOKENS, build_model, build_tokenizer

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "calc",
            "description": "Compute an expression.",
            "parameters": {"type": "object", "properties": {"expr": {"type": "string"}}},
        },
    }
]
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You are careful."},
    {"role": "user", "content": "what is 12*34?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "id": "1", "function": {"name": "calc", "arguments": {"expr": "12*34"}}},
            {"type": "function", "id": "2", "function": {"name": "calc", "arguments": {"expr": "1+1"}}},
        ],
    },
    {"role": "tool", "content": "408", "tool_call_id": "1"},
    {"role": "tool", "content": "2", "tool_call_id": "2"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    first = build_tokenizer(["hello"], 300, folder)
    text = first.apply_chat_template(MESSAGES, tools=TOOLS, tokenize=False, add_generation_prompt=True)
    return build_tokenizer([str(text)] * 20, 512, folder)


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_any_text_comes_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text


def test_special_tokens_are_single_and_digits_alone(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    for loaded in (tokenizer, AutoTokenizer.from_pretrained(folder)):
        for token in SPECIAL_TOKENS + MARKUP_TOKENS:
            assert len(loaded.encode(token, add_special_tokens=False)) == 1
        assert len(loaded.encode("1234", add_special_tokens=False)) == 4
        assert (
            loaded.decode(loaded.encode("<tool_call>x</tool_call>"), skip_special_tokens=True)
            == "<tool_call>x</tool_call>"
        )


def test_the_template_is_what_the_qwen3_renderer_writes(tokenizer: PreTrainedTokenizerFast) -> None:
    renderer = create_renderer(tokenizer, config_from_name("qwen3"))
    for messages, tools in ((MESSAGES, TOOLS), (MESSAGES[1:], TOOLS), (MESSAGES[:2], None), (MESSAGES[1:2], None)):
        ours = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, return_dict=False)
        assert ours == list(renderer.render_ids(messages, tools=tools, add_generation_prompt=True))


def test_a_constant_preamble_folds_into_few_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = tokenizer.apply_chat_template(MESSAGES[:2], tools=TOOLS, add_generation_prompt=True, return_dict=False)
    assert len(ids) < 100


@pytest.mark.parametrize("architecture", ["qwen3", "qwen2", "llama"])
def test_a_seed_gives_the_same_model_and_leaves_the_random_state(
    tokenizer: PreTrainedTokenizerFast, folder: Path, architecture: Any
) -> None:
    before = torch.random.get_rng_state()
    first = build_model(folder, architecture=architecture, hidden=32, layers=1, seed=3)
    second = build_model(folder, architecture=architecture, hidden=32, layers=1, seed=3)
    other = build_model(folder, architecture=architecture, hidden=32, layers=1, seed=4)
    assert torch.equal(before, torch.random.get_rng_state())
    weights = [dict(model.named_parameters())["model.embed_tokens.weight"] for model in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(loaded.get_input_embeddings().weight, weights[2])
    assert loaded.config.vocab_size == len(tokenizer)
    assert loaded.config.eos_token_id == tokenizer.eos_token_id


def test_sizes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too small"):
        build_tokenizer(["x"], 200, tmp_path)
    with pytest.raises(ConfigError, match="multiple"):
        build_model(tmp_path, vocab_size=300, hidden=30, heads=4)
    with pytest.raises(ConfigError, match="no tokenizer"):
        build_model(tmp_path)


def test_the_base_of_the_positions_is_the_models(tmp_path: Path) -> None:
    model = build_model(tmp_path, vocab_size=300, hidden=32, layers=1, heads=2, rope_theta=100.0)
    assert model.config.rope_parameters["rope_theta"] == 100.0
