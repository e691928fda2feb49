"""The attention of the embedded engine, in transformers' registry of attention functions.

The model is called on packed tokens without a cache of its own. This function writes their keys and
values into the engine's cache and lets every query look at its own row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from agentfly.errors import ModelError
from agentfly.models.local.batch import PromptGroup, StepBatch

NAME = "agentfly_rows"


def register() -> None:
    """Make the function known to transformers under `NAME`; may be called again."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, rows_attention)


def rows_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    step: StepBatch,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **extra: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within rows.

    Args:
        module: the model's attention layer; its `layer_idx` picks the layer of the cache.
        query: `[1, heads, T, head_dim]`; key, value: `[1, kv_heads, T, head_dim]`.
        step: what the T tokens are.
        extra: what transformers passes to every such function; a feature that isn't supported is refused.

    Returns:
        Output `[1, T, heads, head_dim]`.

    Raises:
        ModelError: the layer wants logit soft-capping, sinks or a position bias.
    """
    _refuse(extra)
    layer = step.data[module.layer_idx]
    keys, values = layer[0], layer[1]
    head_dim = key.shape[-1]
    keys.view(-1, head_dim).index_copy_(0, step.slots, key.reshape(-1, head_dim))
    values.view(-1, head_dim).index_copy_(0, step.slots, value.reshape(-1, head_dim))
    scale = scaling if scaling is not None else head_dim**-0.5
    last = _last_tokens(query, keys, values, step, scale, sliding_window)
    if not step.groups:
        return last.unsqueeze(0), None
    output = last.new_empty((query.shape[2], *last.shape[1:]))
    output[: step.rows] = last
    for group in step.groups:
        output[group.places] = _prompt_tokens(query, keys, values, group, scale, sliding_window)
    return output.unsqueeze(0), None


def _refuse(extra: dict[str, Any]) -> None:
    for name in ("softcap", "s_aux", "position_bias"):
        if extra.get(name) is not None:
            raise ModelError(f"the embedded engine doesn't support this model's attention ({name}): use another engine")


def _last_tokens(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: StepBatch, scale: float, window: int | None
) -> torch.Tensor:
    """One query for each row; `[n, heads, head_dim]`."""
    rows, length = step.rows, step.length
    heads, head_dim, kv_heads = query.shape[1], query.shape[3], keys.shape[1]
    # The query heads that share a key head become its queries: nothing is repeated.
    queries = query[0, :, :rows].transpose(0, 1).reshape(rows, kv_heads, heads // kv_heads, head_dim)
    output = _attend(queries, keys[:rows, :, :length], values[:rows, :, :length], step.mask(window, query.dtype), scale)
    return output.reshape(rows, heads, head_dim)


def _prompt_tokens(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: PromptGroup, scale: float, window: int | None
) -> torch.Tensor:
    """The further tokens of a group's prompts; `[tokens, heads, head_dim]` without padding."""
    heads, head_dim, kv_heads = query.shape[1], query.shape[3], keys.shape[1]
    size, padded = group.query.shape
    share = heads // kv_heads
    queries = query[0].view(kv_heads, share, -1, head_dim)[:, :, group.query]
    queries = queries.permute(2, 0, 1, 3, 4).reshape(size, kv_heads, share * padded, head_dim)
    output = scaled_dot_product_attention(
        queries,
        keys[group.rows, :, : group.length],
        values[group.rows, :, : group.length],
        attn_mask=group.mask(window, share, query.dtype),
        scale=scale,
    )
    output = output.view(size, kv_heads, share, padded, head_dim).permute(0, 3, 1, 2, 4)
    return output.reshape(size * padded, heads, head_dim)[group.valid]


def _attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    if queries.device.type != "cpu" or queries.dtype != torch.float32:
        return scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
    # On a CPU three plain operations beat the fused one on a handful of queries.
    scores = torch.matmul(queries * scale, keys.transpose(2, 3)).add_(mask)
    return torch.matmul(scores.softmax(-1), values)
