"""Tiny models, and plain transformers to compare with."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from agentfly.models.tiny import CHAT_TEMPLATE, build_model, build_tokenizer

Weights = dict[str, np.ndarray[Any, Any]]

CONTEXT = 1024


def make_model(folder: Path, *, tied: bool) -> str:
    """Save a tiny Qwen3 that talks in ChatML."""
    texts = [CHAT_TEMPLATE, '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'] * 4
    build_tokenizer(texts, 400, folder)
    # Heads of 32: vLLM's attention on CPUs takes multiples of that.
    build_model(folder, hidden=64, layers=2, heads=2, kv_heads=1, max_context=CONTEXT, tied=tied)
    return str(folder)


def options(**more: Any) -> dict[str, Any]:
    """Options of an engine for tests."""
    return {"dtype": "float32", "threads": 1, "cpu_cache_gib": 1, "max_running": 32, **more}


@functools.cache
def plain(path: str) -> PreTrainedModel:
    """The model as transformers has it; not to be changed."""
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def weights_of(path: str) -> Weights:
    """The model's weights; one that two names share comes once."""
    seen: set[int] = set()
    found = {}
    for name, tensor in plain(path).state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            found[name] = tensor.numpy().copy()
    return found


def shaken(weights: Weights, seed: int, size: float = 0.05) -> Weights:
    """Other weights near by."""
    draw = np.random.default_rng(seed)
    return {
        name: value + draw.standard_normal(value.shape).astype(value.dtype) * size for name, value in weights.items()
    }


def logprobs(
    path: str,
    prompt: Sequence[int],
    ids: Sequence[int],
    *,
    temperature: float = 1.0,
    weights: Mapping[str, Any] | None = None,
) -> list[float]:
    """Log-probabilities of a completion by a plain forward pass, under other weights if given."""
    whole = torch.tensor([[*prompt, *ids]])
    with torch.inference_mode():
        if weights is None:
            logits = plain(path)(input_ids=whole).logits
        else:
            named = {name: torch.from_numpy(value) for name, value in weights.items()}
            logits = torch.func.functional_call(plain(path), named, kwargs={"input_ids": whole}).logits
        scores = (logits[0, len(prompt) - 1 : -1].float() / temperature).log_softmax(-1)
    return [float(row[token]) for row, token in zip(scores, ids, strict=True)]


def difference(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest difference of two lists of one length."""
    return max(abs(a - b) for a, b in zip(first, second, strict=True))
