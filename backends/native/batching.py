"""Trajectories to padded micro-batches of a bounded number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentfly.rollout.trajectory import Segment


@dataclass(frozen=True)
class Sample:
    """One segment to learn from.

    Attributes:
        segment: the exact tokens.
        advantage: of the trajectory; its segments share it.
        weight: of each of its sampled tokens in the batch's loss.
    """

    segment: Segment
    advantage: float
    weight: float


@dataclass(frozen=True)
class MicroBatch:
    """Segments padded on the right, and the flat list of tokens to learn from.

    Attention is causal, so what pads the right of a row can't reach its tokens.

    Attributes:
        ids: int64[rows, length].
        rows, columns: int64[n], where each token to learn from is predicted: one before its own place.
        targets: int64[n], the tokens.
        old_logprobs, advantages, weights: float32[n].
    """

    ids: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    targets: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor

    def to(self, device: torch.device) -> MicroBatch:
        """The same on a device."""
        return MicroBatch(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


def trained_tokens(segment: Segment) -> int:
    """Tokens that can be learned from; a first token was predicted from nothing, so it doesn't count."""
    return int(segment.mask[1:].sum())


def micro_batches(samples: Sequence[Sample], max_tokens: int, padding_id: int = 0) -> Iterator[MicroBatch]:
    """Cut samples into batches of at most `max_tokens` padded tokens, but never less than one segment.

    Segments of like length go together, which keeps the padding small.
    """
    order = sorted(range(len(samples)), key=lambda index: len(samples[index].segment))
    rows: list[Sample] = []
    for index in order:
        sample = samples[index]
        if rows and (len(rows) + 1) * len(sample.segment) > max_tokens:
            yield collate(rows, padding_id)
            rows = []
        rows.append(sample)
    if rows:
        yield collate(rows, padding_id)


def collate(samples: Sequence[Sample], padding_id: int = 0, length: int | None = None) -> MicroBatch:
    """Pad samples to one length, at least the longest one's."""
    length = max(length or 0, *(len(sample.segment) for sample in samples))
    ids = np.full((len(samples), length), padding_id, np.int64)
    rows, columns, old, advantages, weights = [], [], [], [], []
    for row, sample in enumerate(samples):
        segment = sample.segment
        ids[row, : len(segment)] = segment.ids
        places = np.flatnonzero(segment.mask[1:])
        rows.append(np.full(len(places), row, np.int64))
        columns.append(places)
        old.append(segment.logprobs[places + 1])
        advantages.append(np.full(len(places), sample.advantage, np.float32))
        weights.append(np.full(len(places), sample.weight, np.float32))
    row_index, column_index = np.concatenate(rows), np.concatenate(columns).astype(np.int64)
    return MicroBatch(
        ids=torch.from_numpy(ids),
        rows=torch.from_numpy(row_index),
        columns=torch.from_numpy(column_index),
        targets=torch.from_numpy(ids[row_index, column_index + 1]),
        old_logprobs=torch.from_numpy(np.concatenate(old).astype(np.float32)),
        advantages=torch.from_numpy(np.concatenate(advantages)),
        weights=torch.from_numpy(np.concatenate(weights)),
    )
