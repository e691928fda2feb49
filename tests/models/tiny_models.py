"""Tiny models on disk, one for each architecture, and a plain forward pass to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from agentfly.models.engine import Completion
from agentfly.models.tiny import build_model

VOCAB = 97


def build(folder: Path, architecture: Any) -> str:
    """Save a small random model; every kind has grouped heads, `gemma3` and `mistral` a sliding window."""
    if architecture in ("qwen3", "qwen2", "llama"):
        tied = architecture != "llama"
        build_model(
            folder, vocab_size=VOCAB, architecture=architecture, hidden=32, layers=2, max_context=256, tied=tied
        )
        return str(folder)
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "sliding_window": 12,
        "initializer_range": 0.1,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if architecture == "gemma3_text":
        sizes["layer_types"] = ["sliding_attention", "full_attention"] * 2
    if architecture == "gemma2":
        sizes["attn_logit_softcapping"] = 30.0
    config = AutoConfig.for_model(architecture, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return str(folder)


def recompute(
    model: PreTrainedModel, prompt: Sequence[int], completion: Completion, temperature: float = 1.0
) -> torch.Tensor:
    """Log-probabilities of a completion by an ordinary transformers forward pass."""
    ids = [*prompt, *completion.ids]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, len(prompt) - 1 : -1].float()
    chosen: torch.Tensor = (logits / temperature).log_softmax(-1).gather(1, torch.tensor([list(completion.ids)]).T)
    return chosen[:, 0]
