"""One step's tokens in packed form, and where their queries, keys and values belong."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
import torch

from agentfly.models.local.sequence import Sequence

# Bound on the padded tokens of a group of prompts, so that its mask stays small.
_GROUP_TOKENS = 4096


@dataclass
class PromptGroup:
    """Rows whose further prompt tokens attend together, padded to one length `m`.

    Attributes:
        rows: `[g]`, rows of the cache.
        length: keys that they look at.
        query: `[g, m]`, places in the packed tokens; padding repeats the first place of its row.
        valid: `[tokens]`, places in the flattened `[g * m]` that are no padding.
        places: `[tokens]`, their places in the packed tokens.
        positions: `[g, m]`, position of each query in its sequence.
    """

    rows: torch.Tensor
    length: int
    query: torch.Tensor
    valid: torch.Tensor
    places: torch.Tensor
    positions: torch.Tensor
    _masks: dict[tuple[int | None, int], torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, repeat: int, dtype: torch.dtype) -> torch.Tensor:
        """Additive mask `[g, 1, repeat * m, length]`; made once for each kind of layer."""
        key = (window, repeat)
        if key not in self._masks:
            mask = _additive(self.positions.unsqueeze(-1), self.length, window, dtype)
            self._masks[key] = mask.unsqueeze(1).repeat(1, 1, repeat, 1)
        return self._masks[key]


@dataclass
class StepBatch:
    """All tokens of a step, T of n rows, in one packed sequence.

    The first n are the last token of each row's chunk, in row order: they attend as one block over
    rows 0 to n - 1. The further tokens of longer chunks (prompts) follow, and attend in groups.

    Attributes:
        data: the cache's tensor `[layers, 2, rows, kv_heads, capacity, head_dim]`.
        rows: n.
        length: keys that the longest row looks at.
        ids, position_ids: `[1, T]`, the model's input.
        slots: `[kv_heads * T]`, places of the new keys in a layer's flattened `[rows * kv_heads * capacity]`.
        groups: of the further tokens.
    """

    data: torch.Tensor
    rows: int
    length: int
    ids: torch.Tensor
    position_ids: torch.Tensor
    slots: torch.Tensor
    groups: list[PromptGroup]
    _masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """Additive mask `[n, 1, 1, length]` of the last tokens; made once for each kind of layer."""
        if window not in self._masks:
            positions = self.position_ids[0, : self.rows].view(-1, 1, 1, 1)
            self._masks[window] = _additive(positions, self.length, window, dtype)
        return self._masks[window]


def _additive(positions: torch.Tensor, length: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """0 where a query at `positions` (`[..., 1]`) sees a key of `length`, minus infinity elsewhere."""
    keys = torch.arange(length, device=positions.device)
    hidden = keys > positions
    if window is not None:
        hidden |= keys <= positions - window
    return torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, float("-inf"))


def build_batch(data: torch.Tensor, running: Seq[Sequence], chunks: Seq[int]) -> StepBatch:
    """Pack the next `chunks[i]` tokens of each running sequence.

    Args:
        data: the cache's tensor, with room for them.
        running: by row.
        chunks: at least 1 each.
    """
    rows = list(range(len(running)))
    positions = [sequence.computed + chunk - 1 for sequence, chunk in zip(running, chunks, strict=True)]
    ids = [sequence.tokens[position] for sequence, position in zip(running, positions, strict=True)]
    length = max(positions) + 1
    longer = [row for row, chunk in enumerate(chunks) if chunk > 1]
    spans: dict[int, tuple[int, int]] = {}  # row: first place in the packed tokens, how many
    for row in longer:
        sequence, count = running[row], chunks[row] - 1
        spans[row] = (len(ids), count)
        ids += sequence.tokens[sequence.computed : sequence.computed + count]
        positions += range(sequence.computed, sequence.computed + count)
        rows += [row] * count
    device = data.device
    kv_heads, capacity = data.shape[3], data.shape[4]
    place = np.array(rows) * (kv_heads * capacity) + np.array(positions)
    slots = np.arange(kv_heads)[:, None] * capacity + place
    return StepBatch(
        data=data,
        rows=len(running),
        length=length,
        ids=torch.tensor([ids], device=device),
        position_ids=torch.tensor([positions], device=device),
        slots=torch.from_numpy(slots.reshape(-1)).to(device),
        groups=[_group(rows, spans, running, device) for rows in _similar(spans)],
    )


def _similar(spans: dict[int, tuple[int, int]]) -> list[list[int]]:
    """Rows grouped so that padding at most doubles the work."""
    groups: list[list[int]] = []
    longest = 0
    for row in sorted(spans, key=lambda row: -spans[row][1]):
        count = spans[row][1]
        if not groups or 2 * count < longest or (len(groups[-1]) + 1) * longest > _GROUP_TOKENS:
            groups.append([])
            longest = count
        groups[-1].append(row)
    return [sorted(group) for group in groups]


def _group(
    rows: list[int], spans: dict[int, tuple[int, int]], running: Seq[Sequence], device: torch.device
) -> PromptGroup:
    first = np.array([spans[row][0] for row in rows])[:, None]
    count = np.array([spans[row][1] for row in rows])[:, None]
    computed = np.array([running[row].computed for row in rows])[:, None]
    offset = np.arange(count.max())
    real = offset < count
    query = first + np.where(real, offset, 0)
    return PromptGroup(
        rows=torch.tensor(rows, device=device),
        length=int((computed + count).max()),
        query=torch.from_numpy(query).to(device),
        valid=torch.from_numpy(np.flatnonzero(real)).to(device),
        places=torch.from_numpy(query[real]).to(device),
        positions=torch.from_numpy(computed + np.where(real, offset, 0)).to(device),
    )
