"""A conversation with an engine: what was said, and for a token engine the exact tokens of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from agentfly.errors import ConfigError, ModelError
from agentfly.models.engine import ChatEngine, Completion, Engine, Message, Sampling
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.trajectory import Segment, SegmentBuilder
from agentfly.rollout.turns import AssistantTurn, ParsedCall, RawCall, call_id, read_call

__all__ = ["AssistantTurn", "ChatConversation", "Conversation", "ParsedCall", "TokenConversation"]


class Conversation(Protocol):
    """What the agent loop talks to.

    Attributes:
        messages: everything said so far, in OpenAI form.
    """

    messages: list[Message]

    @property
    def max_context(self) -> int | None:
        """Most tokens of prompt and completion together; None when that isn't known."""
        ...

    @property
    def prompt_length(self) -> int:
        """Tokens of the next prompt; 0 when they can't be counted."""
        ...

    async def next(self, sampling: Sampling) -> AssistantTurn:
        """One completion from the engine; it joins the messages.

        Raises:
            ModelError: the engine failed or aborted; the conversation stands as before the call.
        """
        ...

    def add(self, messages: Sequence[Message]) -> None:
        """Append observations."""
        ...

    def segments(self) -> list[Segment]:
        """The tokens so far; empty for an engine that gives none."""
        ...

    def drift(self) -> bool | None:
        """Whether the last prompt differs from the whole conversation rendered anew; None where that can't be said."""
        ...


class TokenConversation:
    """A conversation in exact tokens: what was sampled is kept, history is never tokenised again.

    As long as the format can extend prompt and completion, all is one segment. Where it can't, the
    whole conversation is rendered again and a new segment begins; the old one stays as it was.

    Args:
        engine: tokens in, tokens out.
        format: of the engine's model.
        messages: the opening.
        tools: function schemas in OpenAI form.
        session: names the conversation to the engine.
        max_context: the engine's limit, in tokens.
        opening: tokens of the first prompt, where they are known already; rendered when None.
        priority: of its calls, lower runs earlier when the engine is full.

    Raises:
        ConfigError: the format has no form for the opening.
    """

    def __init__(
        self,
        engine: Engine,
        format: ChatFormat,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        *,
        session: str,
        max_context: int,
        opening: Sequence[int] | None = None,
        priority: int = 0,
    ) -> None:
        self.messages: list[Message] = list(messages)
        self._engine = engine
        self._format = format
        self._tools = tools
        self._session = session
        self._max_context = max_context
        self._priority = priority
        self._builders: list[SegmentBuilder] = []
        self._turns = 0
        self._last: tuple[list[int], list[int]] = ([], [])
        self._said = 0
        self._prompt: list[int] | None = format.render(self.messages, tools) if opening is None else list(opening)

    @property
    def max_context(self) -> int:
        return self._max_context

    @property
    def prompt_length(self) -> int:
        """Tokens of the next prompt; while nothing has been added after a turn, of all that stands."""
        if self._turns and self._said == len(self.messages):
            return sum(map(len, self._last))
        return len(self._next_prompt())

    def add(self, messages: Sequence[Message]) -> None:
        self.messages.extend(messages)
        self._prompt = None

    async def next(self, sampling: Sampling) -> AssistantTurn:
        """As in `Conversation`; max_tokens is cut to the context that is left, the format's stop tokens are added.

        Raises:
            ModelError: the engine failed, aborted, or gave lists of different lengths.
            ValueError: there is no room for a token, or nothing was added since the last turn.
        """
        if self._turns and self._said == len(self.messages):
            raise ValueError("nothing was added to the conversation since the last turn")
        prompt = self._next_prompt()
        room = self._max_context - len(prompt)
        if room < 1:
            raise ValueError(f"the prompt of {len(prompt)} tokens leaves no room in a context of {self._max_context}")
        stops = dict.fromkeys((*sampling.stop_token_ids, *self._format.stop_token_ids))
        limited = replace(sampling, max_tokens=min(sampling.max_tokens, room), stop_token_ids=tuple(stops))
        completion = await self._engine.generate(prompt, limited, session=self._session, priority=self._priority)
        self._check(completion)
        return self._commit(prompt, completion)

    def segments(self) -> list[Segment]:
        return [builder.build() for builder in self._builders]

    def drift(self) -> bool | None:
        """What the model saw last, against what a renderer makes of the messages: None before a second turn."""
        if self._turns < 2:
            return None
        try:
            return self._format.render(self.messages[: self._said - 1], self._tools) != self._last[0]
        except ConfigError:
            return True  # a conversation that was extended, and that the format wouldn't write so at all

    def _next_prompt(self) -> list[int]:
        if self._prompt is None:
            new = self.messages[self._said :]
            history = self.messages[: self._said]
            self._prompt = self._format.bridge(*self._last, new, self._tools, history) if self._turns else None
            if self._prompt is None:
                self._prompt = self._format.render(self.messages, self._tools)
        return self._prompt

    def _check(self, completion: Completion) -> None:
        if completion.finish_reason == "abort":
            raise ModelError(f"the engine aborted a completion of {self._session}")
        lengths = {len(completion.ids), len(completion.logprobs), len(completion.policy_versions)}
        if len(lengths) != 1:
            raise ModelError(
                f"the engine gave {len(completion.ids)} tokens, {len(completion.logprobs)} logprobs and "
                f"{len(completion.policy_versions)} policy versions for one completion of {self._session}"
            )

    def _commit(self, prompt: list[int], completion: Completion) -> AssistantTurn:
        sampled = [int(token) for token in completion.ids]
        builder = self._builders[-1] if self._builders else SegmentBuilder()
        stands = len(builder.ids)
        if not self._builders or prompt[:stands] != builder.ids:
            builder, stands = SegmentBuilder(), 0
            self._builders.append(builder)
        builder.add_context(prompt[stands:])
        builder.add_sampled(sampled, completion.logprobs, completion.policy_versions)
        turn = self._format.parse(sampled, self._tools, prompt, turn=self._turns, stop=completion.stop)
        self.messages.append(turn.message)
        self._last, self._said, self._turns, self._prompt = (prompt, sampled), len(self.messages), self._turns + 1, None
        cut = completion.finish_reason == "length"
        return replace(turn, finish_reason=completion.finish_reason, truncated=cut)


class MessageConversation:
    """What conversations have in common that are kept in messages: there are no tokens, so nothing to train on.

    Args:
        messages: the opening.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages: list[Message] = list(messages)

    @property
    def max_context(self) -> None:
        return None

    @property
    def prompt_length(self) -> int:
        return 0

    def add(self, messages: Sequence[Message]) -> None:
        self.messages.extend(messages)

    def segments(self) -> list[Segment]:
        return []

    def drift(self) -> None:
        return None


class ChatConversation(MessageConversation):
    """A conversation with an engine that speaks messages.

    Args:
        engine: messages in, a message out.
        messages: the opening.
        tools: function schemas in OpenAI form.
        session: names the conversation to the engine.
    """

    def __init__(
        self, engine: ChatEngine, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, session: str
    ) -> None:
        super().__init__(messages)
        self._engine = engine
        self._tools = tools
        self._session = session
        self._turns = 0

    async def next(self, sampling: Sampling) -> AssistantTurn:
        answer = await self._engine.chat(self.messages, self._tools, sampling, session=self._session)
        message = answer.message
        given = message.get("tool_calls") or []
        calls = [_read_openai(call, call_id(self._turns, index)) for index, call in enumerate(given)]
        if calls:
            # Some servers leave ids out; an observation must name the call that it answers.
            named = [{**call, "id": parsed.id} for call, parsed in zip(given, calls, strict=True)]
            message = {**message, "tool_calls": named}
        self.messages.append(message)
        self._turns += 1
        cut = answer.finish_reason == "length"
        return AssistantTurn(message, calls, answer.finish_reason, cut, answer.usage.get("completion_tokens", 0))


def _read_openai(call: Mapping[str, Any], fallback_id: str) -> ParsedCall:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else ""
    return read_call(RawCall(text, text, function.get("name"), arguments), call.get("id") or fallback_id)
