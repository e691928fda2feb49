"""One rollout of a foreign agent, as the gateway sees it: its calls, its limits, what went wrong."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import uuid4

from agentfly.errors import ConfigError, ModelError, ResourceError
from agentfly.models.dialects.common import Answer, ChatRequest, RequestRefused
from agentfly.models.engine import Engine, Message, Sampling
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.gateway.answering import Tell, answer_of, sample
from agentfly.rollout.gateway.capture import Capture, Known
from agentfly.rollout.seeds import derive_seed

Limit = Literal["max_turns", "max_tokens", "context_full"]


@dataclass(frozen=True)
class SessionLimits:
    """What a rollout may use.

    Attributes:
        max_calls: answered at most.
        max_tokens: of one answer; max_total_tokens: of all of them.
        max_context: of the engine.
    """

    max_calls: int
    max_tokens: int
    max_context: int
    max_total_tokens: int | None = None


class CaptureSession:
    """Answers the calls of one agent by the policy, and keeps their exact tokens.

    Temperature and truncations are the job's, whatever a call asks for: they belong to the policy that is trained.
    Limits of a call's length and stop texts are the call's own.

    Args:
        engine: of the policy.
        format: of its model.
        id: names the session to the engine.
        sampling: of the job; each call gets a seed derived from `seed`.
        limits: of the rollout.
        priority: of its calls.

    Attributes:
        capture: the calls so far.
        limit: the limit that ended the rollout, once one has.
        fault: the engine's failure, once there was one.
        truncated: an answer was cut by a limit.
    """

    def __init__(
        self,
        engine: Engine,
        format: ChatFormat,
        *,
        id: str,
        sampling: Sampling,
        seed: int,
        limits: SessionLimits,
        priority: int = 0,
    ) -> None:
        self.capture = Capture()
        self.limit: Limit | None = None
        self.fault: ModelError | ResourceError | None = None
        self.truncated = False
        self.generating = 0.0
        self._engine = engine
        self._format = format
        self._id = id
        self._sampling = sampling
        self._seed = seed
        self._limits = limits
        self._priority = priority
        self._begun = 0
        self._drifted: bool | None = None

    async def answer(self, request: ChatRequest, tell: Tell | None = None) -> Answer:
        """Answer one call; several may be under way.

        Raises:
            RequestRefused: the call can't be answered, a limit of the rollout is reached, or the engine failed.
        """
        self._refuse_over_limits()
        before, prompt = self._prompt(request)
        sampling = self._sampling_of(request, prompt)
        number, self._begun = self._begun, self._begun + 1
        sampling = replace(sampling, seed=derive_seed(self._seed, "call", number))
        started = time.monotonic()
        try:
            completion = await sample(
                self._engine,
                self._format,
                prompt,
                request,
                sampling,
                session=self._id,
                priority=self._priority,
                tell=tell,
            )
        except (ModelError, ResourceError) as error:
            self.fault = self.fault or error
            raise RequestRefused(f"the policy can't be reached: {error}", status=503, code="no_policy") from error
        finally:
            self.generating += time.monotonic() - started
        answer = answer_of(
            self._format, request, prompt, completion, id=f"af-{uuid4().hex}", created=int(time.time()), turn=number
        )
        self.truncated = self.truncated or answer.finish_reason == "length"
        self.capture.add(request.messages, request.tools, prompt, completion, answer.message, before)
        return answer

    @property
    def messages(self) -> list[Message]:
        """The conversation of the last answered call."""
        return list(self.capture.last.messages) if self.capture.last is not None else []

    def drift(self) -> bool | None:
        """Whether the last extended prompt differs from its conversation rendered anew; None where none was."""
        return self._drifted

    def _refuse_over_limits(self) -> None:
        total = self._limits.max_total_tokens
        if self._begun >= self._limits.max_calls:
            self._end("max_turns", f"the rollout may make {self._limits.max_calls} calls")
        if total is not None and self.capture.sampled >= total:
            self._end("max_tokens", f"the rollout may sample {total} tokens")

    def _prompt(self, request: ChatRequest) -> tuple[Known | None, list[int]]:
        """The call's exact tokens: those of the call that it goes on from, extended, or rendered anew."""
        if not request.messages:
            raise RequestRefused("messages must hold at least one message")
        found = self.capture.find(request.messages, request.tools)
        try:
            if found is not None:
                known, length = found
                new: Sequence[Message] = request.messages[length:]
                bridged = self._format.bridge(
                    known.prompt_ids, known.completion_ids, new, request.tools, known.messages
                )
                if bridged is not None:
                    self._drifted = bridged != self._format.render(request.messages, request.tools)
                    return known, bridged
            return None, self._format.render(request.messages, request.tools)
        except ConfigError as error:
            raise RequestRefused(str(error), code="unsupported_messages") from error

    def _sampling_of(self, request: ChatRequest, prompt: Sequence[int]) -> Sampling:
        limits = self._limits
        room = limits.max_context - len(prompt)
        if room < 1:
            message = f"the maximum context length is {limits.max_context} tokens, the messages have {len(prompt)}"
            self._end("context_full", message, code="context_length_exceeded")
        wanted = [limits.max_tokens, room]
        if request.max_tokens is not None:
            wanted.append(max(1, request.max_tokens))
        if limits.max_total_tokens is not None:
            wanted.append(limits.max_total_tokens - self.capture.sampled)
        stops = dict.fromkeys((*self._sampling.stop_token_ids, *self._format.stop_token_ids))
        return replace(
            self._sampling,
            max_tokens=min(wanted),
            stop_token_ids=tuple(stops),
            stop=tuple(dict.fromkeys((*self._sampling.stop, *filter(None, request.stop)))),
        )

    def _end(self, limit: Limit, message: str, code: str | None = None) -> None:
        self.limit = self.limit or limit
        raise RequestRefused(message, code=code or limit)
