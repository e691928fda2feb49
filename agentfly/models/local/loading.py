"""Loads a model for the embedded engine, and refuses one that the engine can't run exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from agentfly.errors import ModelError, first_line
from agentfly.models.local import attention
from agentfly.models.local.cache import CacheShape
from agentfly.models.local.model import LocalModel
from agentfly.models.local.proof import prove

_KINDS = {"full_attention", "sliding_attention"}
# Their angles depend on the longest sequence of the batch, so that neighbours would change a sequence.
_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")


def load_model(path: str, *, dtype: str = "float32", device: str = "cpu", max_context: int | None = None) -> LocalModel:
    """Load a model and prove the engine exact on it.

    Args:
        path: folder in Hugging Face format, or a name that transformers can resolve.
        dtype: name of a floating type of torch, or `auto` for the one that the model was saved in.
        device: a torch device.
        max_context: a limit below the model's own; None takes the model's.

    Raises:
        ModelError: it can't be loaded, or it needs something that the engine hasn't.
    """
    attention.register()
    kind = dtype if dtype == "auto" else _torch_dtype(dtype)
    try:
        config: Any = AutoConfig.from_pretrained(path).get_text_config()
        _check(config, path)
        with _quiet():
            module: Any = AutoModelForCausalLM.from_pretrained(path, dtype=kind)
    except Exception as error:  # transformers, safetensors and torch raise what they like
        raise ModelError(f"can't load a causal language model from {path!r}: {first_line(error)}") from error
    module = module.to(device).eval().requires_grad_(False)
    own_limit = getattr(config, "max_position_embeddings", None)
    if own_limit is None and max_context is None:
        raise ModelError(f"{path!r} doesn't say its longest context: set max_context in the engine's options")
    model = LocalModel(
        module=module,
        shape=_cache_shape(config, module.dtype, module.device),
        vocab_size=int(config.vocab_size),
        max_context=min(limit for limit in (own_limit, max_context) if limit is not None),
    )
    try:
        prove(model)
    except ModelError as error:
        raise ModelError(f"{path!r} ({type(module).__name__}): {error}") from error
    return model


def _torch_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ModelError(f"dtype {name!r} is no floating type of torch: use float32, bfloat16, float16 or auto")
    return dtype


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars in the logs of a host."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _check(config: Any, path: str) -> None:
    others = set(getattr(config, "layer_types", None) or ()) - _KINDS
    if others:
        raise ModelError(
            f"{path!r} has layers of kind {', '.join(sorted(others))}: the embedded engine can't cache them"
        )
    rope = getattr(config, "rope_parameters", None) or {}
    for entry in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if entry.get("rope_type") in _BATCH_DEPENDENT_ROPE:
            raise ModelError(
                f"{path!r} has {entry['rope_type']} rotary positions: the embedded engine can't batch them"
            )


def _cache_shape(config: Any, dtype: torch.dtype, device: torch.device) -> CacheShape:
    heads = config.num_attention_heads
    return CacheShape(
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=dtype,
        device=device,
    )
