"""The engine without threads: requests in, steps, completions out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agentfly.errors import ModelError
from agentfly.models.engine import Completion, Piece
from agentfly.models.local.batch import build_batch
from agentfly.models.local.cache import KVCache
from agentfly.models.local.model import LocalModel
from agentfly.models.local.prefix_index import PrefixIndex
from agentfly.models.local.prefix_store import Parked, PrefixStore
from agentfly.models.local.sampler import Params, draw
from agentfly.models.local.scheduler import Admission, Limits, Plan, Scheduler
from agentfly.models.local.sequence import Sequence
from agentfly.models.local.uniforms import uniforms
from agentfly.models.local.weights import WeightTable

# An idle engine keeps this much, so that the next batch needn't grow it anew.
_IDLE_CACHE_BYTES = 256 << 20


@dataclass
class Counters:
    """Tokens since start."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0
    requests: int = 0


@dataclass(frozen=True)
class _Frame:
    """What stays the same from step to step while the same sequences draw."""

    members: list[int]
    params: Params
    seeds: np.ndarray[Any, np.dtype[np.uint64]]


class EngineCore:
    """Continuous batching on one model. Not thread-safe: one thread calls it.

    Args:
        model: what to run.
        limits: of the batch.
        prefix_bytes: memory for the keys and values of ended sequences.
        version: of the weights in place.
    """

    def __init__(self, model: LocalModel, limits: Limits, *, prefix_bytes: int, version: int = 0) -> None:
        self.model = model
        self._weights = WeightTable(model.module)
        self._index = PrefixIndex()
        self._scheduler = Scheduler(limits, self._index)
        self._store = PrefixStore(self._index, prefix_bytes)
        self._cache = KVCache(model.shape)
        self._last_frame: _Frame | None = None
        self._parked_ids = itertools.count(-1, -1)
        self.version = version
        self.counters = Counters()

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        return bool(self._scheduler)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; its id is new, and not negative."""
        self.counters.requests += 1
        self.counters.prompt_tokens += sequence.prompt_length
        self._scheduler.add(sequence)

    def cancel(self, sequence_id: int) -> None:
        """Drop a sequence and its row; ignored when it has ended."""
        for sequence in list(self._scheduler):
            if sequence.id == sequence_id:
                self._scheduler.remove(sequence)

    def abort(self, session: str) -> list[tuple[int, Completion]]:
        """End a session's sequences with what they have, and forget its parked entries."""
        ended = [sequence for sequence in self._scheduler if sequence.session == session]
        for sequence in ended:
            self._scheduler.remove(sequence)
        self._store.forget(session)
        return [(sequence.id, sequence.completion("abort")) for sequence in ended]

    def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace the weights; tokens drawn from now on carry `version`.

        Running sequences go on from the keys and values that they have: the log-probabilities that
        they record are those that their tokens were drawn with, which is what an importance ratio
        needs. Nothing computed before is shared with others any more.
        """
        self._weights.replace(weights)
        self._store.clear()
        self._scheduler.weights_changed()
        self.version = version

    def reset(self) -> list[int]:
        """Drop everything after a failure; returns the ids of the sequences that were lost."""
        lost = list(self._scheduler)
        for sequence in lost:
            self._scheduler.remove(sequence)
        self._store.clear()
        self._index.clear()
        self._cache.clear()
        return [sequence.id for sequence in lost]

    def step(self) -> list[tuple[int, Completion]]:
        """Compute one step and draw a token for every row that is through with its prompt.

        Returns:
            Ids and completions of the sequences that ended.

        Raises:
            ModelError: the model gave no finite numbers.
        """
        plan = self._scheduler.plan()
        running = self._scheduler.running
        self._prepare(plan, running)
        step = build_batch(self._cache.data, running, plan.chunks)
        drawing = [
            sequence for sequence, chunk in zip(running, plan.chunks, strict=True) if chunk == sequence.remaining
        ]
        everyone = len(drawing) == len(running)
        rows = [sequence.row for sequence in drawing]
        wanted = None if everyone else torch.tensor(rows, dtype=torch.int64, device=step.ids.device)
        logits = self.model.forward(step, wanted)
        self._scheduler.computed(plan)
        self.counters.steps += 1
        ended = self._draw(logits, drawing) if drawing else []
        if not self._scheduler:
            self._cache.clear(above=_IDLE_CACHE_BYTES)
        return ended

    def pieces(self) -> list[tuple[int, Piece]]:
        """Ids and news of the running sequences whose callers listen to them."""
        listened = [sequence for sequence in self._scheduler.running if sequence.told is not None]
        return [(each.id, each.piece()) for each in listened if len(each.logprobs) > (each.told or 0)]

    def stats(self) -> dict[str, float]:
        """Counters since start, and sizes now."""
        counters = self.counters
        return {
            "requests": counters.requests,
            "prompt_tokens": counters.prompt_tokens,
            "cached_tokens": counters.cached_tokens,
            "generated_tokens": counters.generated_tokens,
            "steps": counters.steps,
            "running": len(self._scheduler.running),
            "waiting": len(self._scheduler.waiting),
            "parked": len(self._store),
            "parked_bytes": self._store.bytes,
            "cache_bytes": self._cache.bytes,
            "policy_version": self.version,
        }

    def _prepare(self, plan: Plan, running: Seq[Sequence]) -> None:
        """Fill and move rows as planned, with room for the step's tokens."""
        last = max(sequence.computed + chunk for sequence, chunk in zip(running, plan.chunks, strict=True))
        self._cache.reserve(len(running), last)
        for admission in plan.admissions:
            self._fill(admission)
        for admission in plan.admissions:  # after all copies: several may be of one entry
            if admission.entry is not None:
                self._store.supersede(admission.entry, admission.length, admission.sequence.session)
        for source, target, length in plan.moves:
            self._cache.copy(source, target, length)

    def _fill(self, admission: Admission) -> None:
        sequence, length = admission.sequence, admission.length
        if admission.source_row is not None:
            self._cache.copy(admission.source_row, sequence.row, length)
        elif admission.entry is not None:
            self._cache.load(sequence.row, self._store.block(admission.entry), length)
        self.counters.cached_tokens += length

    def _draw(self, logits: torch.Tensor, drawing: list[Sequence]) -> list[tuple[int, Completion]]:
        frame = self._frame(drawing)
        positions = np.array([len(sequence.tokens) for sequence in drawing], np.uint64)
        uniform = torch.from_numpy(uniforms(frame.seeds, positions)).to(logits.device)
        tokens, logprobs = (result.tolist() for result in draw(logits, frame.params, uniform))
        if not math.isfinite(sum(logprobs)):
            raise ModelError(f"the model gives no finite logits under the weights of version {self.version}")
        self.counters.generated_tokens += len(drawing)
        ended: list[tuple[int, Completion]] = []
        for sequence, token, logprob in zip(drawing, tokens, logprobs, strict=True):
            reason = sequence.append(token, logprob, self.version)
            if reason is not None:
                self._park(sequence)
                self._scheduler.remove(sequence)
                ended.append((sequence.id, sequence.completion(reason)))
        return ended

    def _frame(self, drawing: list[Sequence]) -> _Frame:
        members = [sequence.id for sequence in drawing]
        if self._last_frame is None or self._last_frame.members != members:
            self._last_frame = _Frame(
                members,
                Params.of([sequence.sampling for sequence in drawing], self.model.shape.device),
                np.array([sequence.seed for sequence in drawing], np.uint64),
            )
        return self._last_frame

    def _park(self, sequence: Sequence) -> None:
        """Keep an ended sequence's keys and values; its last token has none, having never been an input."""
        length = sequence.computed
        if sequence.stale or not self._store.fits(length * self.model.shape.bytes_per_token):
            return
        block = self._cache.save(sequence.row, length)
        self._store.park(next(self._parked_ids), sequence.array(length), Parked(sequence.session, block))
