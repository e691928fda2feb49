"""What every model engine does: token ids in, sampled token ids out.

Engines are resources: they run in the hosts of a `ModelSpec` pool, and a rollout reaches them
through a lease. A `ChatEngine` speaks messages instead of tokens; it can be evaluated, never
trained on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict

FinishReason = Literal["stop", "length", "abort"]


class Message(TypedDict, total=False):
    """One chat message in OpenAI form; `role` and `content` are always there."""

    role: str
    content: str
    tool_calls: list[dict[str, Any]]
    tool_call_id: str
    name: str
    reasoning_content: str


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        max_tokens: most tokens of one completion, the stop token included.
        temperature: 0 takes the most likely token.
        top_p, top_k, min_p: the usual truncations; 1.0, 0 and 0.0 switch them off.
        stop_token_ids: a completion ends with (and includes) the first of these.
        stop: a completion ends with the token that completes the first of these texts. Its tokens are kept as they
            were sampled; of its text, what comes before the stop is shown.
        seed: the same seed, prompt and weights give the same completion, whatever else is in the
            batch; None draws one.
    """

    max_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True)
class Completion:
    """What an engine sampled: three lists of one length.

    Attributes:
        ids: the sampled tokens, the stop token included when there was one.
        logprobs: log-probability of each under the distribution it was drawn from (after
            temperature and truncation).
        policy_versions: version of the weights that drew each token.
        finish_reason: `stop` (a stop token or text), `length` (max_tokens or the context's end), `abort`.
        stop: the stop text that ended it; None when a token did, or nothing.
    """

    ids: Sequence[int]
    logprobs: Sequence[float]
    policy_versions: Sequence[int]
    finish_reason: FinishReason
    stop: str | None = None


@dataclass(frozen=True)
class Piece:
    """A part of a completion on its way: what was sampled since the piece before.

    Attributes:
        ids, logprobs, policy_versions: as in `Completion`; may be empty in the last piece.
        finish_reason: of the whole completion in its last piece, None before.
        stop: in the last piece, as in `Completion`.
    """

    ids: Sequence[int]
    logprobs: Sequence[float]
    policy_versions: Sequence[int]
    finish_reason: FinishReason | None = None
    stop: str | None = None


def piece_of(completion: Completion, start: int = 0) -> Piece:
    """The last piece of a completion, of which `start` tokens have been told."""
    return Piece(
        completion.ids[start:],
        completion.logprobs[start:],
        completion.policy_versions[start:],
        completion.finish_reason,
        completion.stop,
    )


@dataclass(frozen=True)
class EngineInfo:
    """What a caller must know of an engine before it can talk to it.

    Attributes:
        max_context: most tokens of prompt and completion together.
        policy_version: version of the weights in place.
    """

    max_context: int
    policy_version: int = 0


class Engine(Protocol):
    """A token engine. All methods are coroutines because they run in another process."""

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> Completion:
        """Sample one completion.

        Args:
            prompt_ids: the whole prompt, never empty.
            sampling: how to draw.
            session: calls of one session extend each other, so that an engine can keep its KV cache.
            priority: lower runs earlier when the batch is full.

        Raises:
            ModelError: the prompt doesn't fit the context, or the engine failed.
        """
        ...

    def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> AsyncIterator[Piece]:
        """As `generate`, told while it is sampled; who stops listening cancels it."""
        ...

    async def abort(self, session: str) -> None:
        """End the session's running calls with what they have, and forget its cache."""
        ...

    async def pause(self) -> None:
        """Sample nothing until `resume`; calls wait. Returns when nothing is being computed."""
        ...

    async def resume(self) -> None:
        """Go on after `pause`."""
        ...

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace the weights (name to numpy array, Hugging Face names); running calls go on under them."""
        ...

    async def info(self) -> EngineInfo:
        """The engine's limits and the version of its weights."""
        ...

    async def stats(self) -> dict[str, float]:
        """Counters since start: prompt_tokens, cached_tokens, generated_tokens, running, and an engine's own."""
        ...


@dataclass(frozen=True)
class ChatCompletion:
    """A chat endpoint's answer.

    Attributes:
        message: the assistant message, tool calls in OpenAI form (arguments as a JSON string).
        finish_reason: as the endpoint said it (`stop`, `length`, `tool_calls`, ...).
        usage: prompt_tokens and completion_tokens, when told.
    """

    message: Message
    finish_reason: str
    usage: Mapping[str, int] = field(default_factory=dict)


class ChatEngine(Protocol):
    """An engine that speaks messages: for evaluation, never for training."""

    async def chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Sampling, *, session: str = ""
    ) -> ChatCompletion:
        """Answer a conversation.

        Args:
            messages: the whole conversation so far.
            tools: function schemas in OpenAI form (`{"type": "function", "function": {...}}`).
            sampling: only temperature, top_p, max_tokens and seed are sent on.
            session: identity of the conversation.

        Raises:
            ModelError: the endpoint failed after its retries.
        """
        ...
