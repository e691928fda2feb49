"""One request in the engine: its tokens, how far their keys and values are computed, what it recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from agentfly.models.engine import Completion, FinishReason, Piece, Sampling
from agentfly.models.local.prefix_tree import Tokens
from agentfly.models.stopping import StopText


@dataclass(eq=False)
class Sequence:
    """A prompt and what was sampled after it.

    Attributes:
        id: unique in the engine.
        session: whose call it is.
        tokens: prompt and sampled tokens.
        prompt_length: how many of them are the prompt.
        limit: most tokens of both together.
        sampling: how tokens are drawn; `seed` replaces its seed when it has none.
        priority: lower runs earlier; equal ones run by id.
        row: its row of the cache, -1 while it waits.
        computed: leading tokens whose keys and values are in the row.
        stale: weights were replaced under it, so its keys and values must not be reused.
        stop_text: looks for the sampling's stop texts; `stopped_by` is the one that was found.
        told: sampled tokens that a streaming caller has been told of; None for one that waits for the end.
    """

    id: int
    session: str
    tokens: list[int]
    sampling: Sampling
    seed: int
    limit: int
    priority: int = 0
    prompt_length: int = field(init=False)
    row: int = -1
    computed: int = 0
    stale: bool = False
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    stop: frozenset[int] = field(init=False)
    stop_text: StopText | None = None
    stopped_by: str | None = None
    told: int | None = None

    def __post_init__(self) -> None:
        self.prompt_length = len(self.tokens)
        self.stop = frozenset(self.sampling.stop_token_ids)

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: who runs first."""
        return self.priority, self.id

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next one can be drawn; at least 1."""
        return len(self.tokens) - self.computed

    def array(self, length: int | None = None) -> Tokens:
        """The first `length` tokens (all by default) as an array."""
        return np.array(self.tokens[:length], np.int64)

    def append(self, token: int, logprob: float, version: int) -> FinishReason | None:
        """Take a drawn token; returns why the sequence ends with it, None when it goes on."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        if token in self.stop:
            return "stop"
        if self.stop_text is not None:
            self.stopped_by = self.stop_text.found(self.tokens, self.prompt_length)
            if self.stopped_by is not None:
                return "stop"
        return "length" if len(self.tokens) >= self.limit else None

    def completion(self, reason: FinishReason) -> Completion:
        """What the caller gets."""
        return Completion(self.tokens[self.prompt_length :], self.logprobs, self.versions, reason, self.stopped_by)

    def piece(self) -> Piece:
        """What a streaming caller hasn't been told yet; it counts as told from now on."""
        start, self.told = self.told or 0, len(self.logprobs)
        return Piece(self.tokens[self.prompt_length + start :], self.logprobs[start:], self.versions[start:])
