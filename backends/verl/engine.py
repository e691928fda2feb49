"""verl's rollout servers as one of AgentFly's engines: tokens in, tokens out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentfly.errors import ModelError
from agentfly.models.engine import Completion, EngineInfo, Piece, Sampling, piece_of


class Server(Protocol):
    """What is used of verl's `LLMServerClient`."""

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **media: Any
    ) -> Any:
        """A `TokenOutput`: token_ids, log_probs, stop_reason, num_preempted, routed_experts, extra_fields."""
        ...


@dataclass(frozen=True)
class Call:
    """What is kept of one call beside its tokens.

    Attributes:
        tokens: sampled.
        preempted: how often the server put it off.
        extra: the server's own fields, such as the versions of the weights.
        routed_experts: of the tokens so far, where the server records them.
    """

    tokens: int
    preempted: int
    extra: Mapping[str, Any]
    routed_experts: Any = None


@dataclass
class CallLog:
    """The calls of one attempt at a rollout, in order; `scored`: every token came with its log-probability."""

    calls: list[Call] = field(default_factory=list)
    scored: bool = True

    @property
    def preempted(self) -> int:
        """Over all calls; -1 when the servers don't tell."""
        told = [call.preempted for call in self.calls if call.preempted >= 0]
        return sum(told) if told else -1


class VerlEngine:
    """An `Engine` for one rollout.

    Args:
        server: verl's client.
        params: verl's sampling parameters; what AgentFly doesn't know goes to the server as it is.
        media: images and the like of the prompt, as `generate` takes them.
        max_context: most tokens of prompt and completion together.
        log: gets every call.
    """

    def __init__(
        self, server: Server, params: Mapping[str, Any], media: Mapping[str, Any], max_context: int, log: CallLog
    ) -> None:
        self._server = server
        self._params = dict(params)
        self._media = {name: value for name, value in media.items() if value is not None}
        self._max_context = max_context
        self._log = log

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> Completion:
        """As `Engine.generate`; the seed is not sent on, since not every server of verl's takes one."""
        params = {**self._params, "max_tokens": sampling.max_tokens}
        if sampling.stop_token_ids:
            params["stop_token_ids"] = list(sampling.stop_token_ids)
        try:
            output = await self._server.generate(
                request_id=session, prompt_ids=list(prompt_ids), sampling_params=params, **self._media
            )
        except Exception as error:  # whatever a remote server raises
            raise ModelError(f"verl's rollout server failed: {type(error).__name__}: {error}") from error
        ids = list(output.token_ids)
        if not ids or output.stop_reason == "aborted":
            return Completion(ids, [0.0] * len(ids), [0] * len(ids), "abort")
        self._keep(output, len(ids))
        logprobs = list(output.log_probs) if output.log_probs is not None else [0.0] * len(ids)
        # verl says "completed" for both ends, so the last token has to tell which it was.
        stopped = ids[-1] in sampling.stop_token_ids
        return Completion(ids, logprobs, [_version(output.extra_fields)] * len(ids), "stop" if stopped else "length")

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> AsyncIterator[Piece]:
        """As `Engine.stream`, in one piece: verl's servers tell only of whole completions."""
        yield piece_of(await self.generate(prompt_ids, sampling, session=session, priority=priority))

    async def abort(self, session: str) -> None:
        """verl ends requests for all of a server only: this one's ends by itself."""

    async def pause(self) -> None:
        """verl puts its servers to sleep and wakes them itself."""

    async def resume(self) -> None:
        """As `pause`."""

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Never called: verl brings its servers new weights."""
        raise ModelError("verl's servers get their weights from verl")

    async def info(self) -> EngineInfo:
        """The context that the row may have."""
        return EngineInfo(self._max_context)

    async def stats(self) -> dict[str, float]:
        """Nothing: the servers' counters are verl's."""
        return {}

    def _keep(self, output: Any, tokens: int) -> None:
        preempted = -1 if output.num_preempted is None else int(output.num_preempted)
        self._log.calls.append(Call(tokens, preempted, dict(output.extra_fields), output.routed_experts))
        self._log.scored = self._log.scored and output.log_probs is not None


def _version(extra: Mapping[str, Any]) -> int:
    version = extra.get("max_global_steps", extra.get("global_steps"))
    return int(version) if version is not None else 0
