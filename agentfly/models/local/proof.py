"""The start-up proof: a model gives the same through the engine as by itself."""

from __future__ import annotations

import numpy as np
import torch

from agentfly.errors import ModelError
from agentfly.models.engine import Sampling
from agentfly.models.local import attention
from agentfly.models.local.batch import build_batch
from agentfly.models.local.cache import KVCache
from agentfly.models.local.model import LocalModel
from agentfly.models.local.sequence import Sequence

# Two ragged rows through prompts, single tokens and a prompt that goes on.
_CHUNKS = ((17, 1, 1, 5), (6, 2, 1, 1))
# Above what the order of sums explains, far below what a wrong mask or a missing feature makes.
_TOLERANCE = 2e-3
_LOW_PRECISION_TOLERANCE = 0.5


def prove(model: LocalModel) -> None:
    """Run a few made-up tokens both ways; leaves the engine's attention in place.

    Raises:
        ModelError: the log-probabilities differ, or the model can't run through the engine at all.
    """
    length = max(map(sum, _CHUNKS))
    ids = np.random.default_rng(0).integers(0, model.vocab_size, length).tolist()
    with torch.inference_mode():
        inputs = torch.tensor([ids], device=model.module.device)
        expected = model.module(input_ids=inputs, use_cache=False).logits[0].float().log_softmax(-1)
        model.module.set_attn_implementation(attention.NAME)
        try:
            difference = _difference(model, ids, expected)
        except (TypeError, RuntimeError, KeyError, AttributeError, IndexError) as error:
            raise ModelError(f"the embedded engine can't run it: {type(error).__name__}: {error}") from error
    tolerance = _TOLERANCE if model.shape.dtype.itemsize >= 4 else _LOW_PRECISION_TOLERANCE
    if not difference <= tolerance:
        raise ModelError(
            f"its log-probabilities are off by {difference:.2g} in the embedded engine, "
            "so its attention needs something that the engine hasn't: use another engine"
        )


def _difference(model: LocalModel, ids: list[int], expected: torch.Tensor) -> float:
    cache = KVCache(model.shape)
    cache.reserve(len(_CHUNKS), len(ids))
    rows = [Sequence(row, "", ids[: sum(chunks)], Sampling(), 0, len(ids)) for row, chunks in enumerate(_CHUNKS)]
    worst = 0.0
    for chunks in zip(*_CHUNKS, strict=True):
        logits = model.forward(build_batch(cache.data, rows, chunks)).float().log_softmax(-1)
        for row, chunk in zip(rows, chunks, strict=True):
            row.computed += chunk
        wanted = expected[[row.computed - 1 for row in rows]]
        difference = float((logits - wanted).abs().max())
        if not difference <= worst:
            worst = difference
    return worst
