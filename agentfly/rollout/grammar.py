"""Messages to tokens and back: what a chat format does, and the families that `renderers` knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentfly.errors import ConfigError
from agentfly.models.engine import Message
from agentfly.rollout.tokenizer import FolderTokenizer
from agentfly.rollout.turns import RawCall, json_problem, with_plain_arguments

Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ParsedText:
    """A completion taken apart.

    Attributes:
        content: text before the first call; where every call turns out malformed, `tail` follows it.
        tail: from the first call to the end, as sampled.
        reasoning: the model's thoughts; None when it had none.
        reasoning_open: the completion ended inside its thoughts.
        calls: every attempt at a call, in order.
    """

    content: str
    tail: str = ""
    reasoning: str | None = None
    reasoning_open: bool = False
    calls: Sequence[RawCall] = ()


class Grammar(Protocol):
    """How one model family writes conversations in tokens."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an assistant's turn."""
        ...

    def render(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """The whole conversation, up to where the assistant's next token is sampled."""
        ...

    def parse(self, completion_ids: Sequence[int], tools: Tools, prompt_ids: Sequence[int]) -> ParsedText:
        """Take a completion apart; may raise on rubbish."""
        ...

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        new_messages: Sequence[Message],
        tools: Tools,
        history: Sequence[Message],
    ) -> list[int] | None:
        """The next prompt as an extension of prompt and completion; None when there is none."""
        ...

    def check(self) -> None:
        """Raise `ConfigError` when conversations can't be bridged exactly."""
        ...

    def check_tools(self) -> None:
        """Raise `ConfigError` when tool calls are written in a form that isn't read."""
        ...


class FamilyGrammar:
    """A family that the `renderers` library knows: its renderer does all the work.

    Args:
        tokenizer: with the family's special tokens.
        renderer: a `renderers.Renderer`.
    """

    def __init__(self, tokenizer: FolderTokenizer, renderer: Any) -> None:
        self._tokenizer = tokenizer
        self._renderer = renderer

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return tuple(self._renderer.get_stop_token_ids())

    def render(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        plain = [with_plain_arguments(message) for message in messages]
        ids = self._renderer.render_ids(plain, tools=list(tools) or None, add_generation_prompt=True)
        return list(ids)

    def parse(self, completion_ids: Sequence[int], tools: Tools, prompt_ids: Sequence[int]) -> ParsedText:
        ids = before_stop(completion_ids, self.stop_token_ids)
        parsed = self._renderer.parse_response(
            list(completion_ids), tools=list(tools) or None, prompt_ids=list(prompt_ids)
        )
        calls = [raw_call(call, self._tokenizer, ids) for call in parsed.tool_calls]
        return ParsedText(
            parsed.content,
            tail_of(parsed.tool_calls, self._tokenizer, ids),
            parsed.reasoning_content,
            parsed.reasoning_complete is False,
            calls,
        )

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        new_messages: Sequence[Message],
        tools: Tools,
        history: Sequence[Message],
    ) -> list[int] | None:
        rendered = self._renderer.bridge_to_next_turn(
            list(prompt_ids),
            list(completion_ids),
            [dict(message) for message in new_messages],
            tools=list(tools) or None,
        )
        return None if rendered is None else list(rendered.token_ids)

    def check_tools(self) -> None:
        """A family's renderer reads what it writes."""

    def check(self) -> None:
        """A tool's answer must extend the stream after some completion: else every turn would start a new segment."""
        opening: list[Message] = [{"role": "user", "content": "a"}]
        answer: Message = {"role": "tool", "content": "b", "name": "probe", "tool_call_id": "call00000"}
        prompt = self.render(opening, ())
        # Some families open the thoughts in the prompt, and some end a turn with one token before a tool and another
        # before a user.
        for text in ("c", "</think>c"):
            for end in self.stop_token_ids:
                completion = [*self._tokenizer.encode(text), end]
                bridged = self.bridge(prompt, completion, [answer], (), opening)
                if bridged is not None and bridged[: len(prompt) + len(completion)] == prompt + completion:
                    return
        raise ConfigError(
            f"{type(self._renderer).__name__} can't extend a conversation by a tool's answer, so every turn would be a "
            "segment of its own: train with another family"
        )


def before_stop(ids: Sequence[int], stop_token_ids: Sequence[int]) -> list[int]:
    """The ids up to the first stop token."""
    for index, token in enumerate(ids):
        if token in stop_token_ids:
            return list(ids[:index])
    return list(ids)


def raw_call(call: Any, tokenizer: FolderTokenizer, ids: Sequence[int]) -> RawCall:
    """A `renderers.base.ParsedToolCall` in our terms.

    Args:
        call: as a parser of `renderers` found it.
        tokenizer: decodes its span.
        ids: the completion without its stop token, which the span counts in.
    """
    sampled = call.raw
    if call.token_span is not None:
        start, end = call.token_span
        sampled = tokenizer.decode(list(ids[start:end]))
    return RawCall(call.raw, sampled, call.name, call.arguments, _problem(call), call.id)


def tail_of(calls: Sequence[Any], tokenizer: FolderTokenizer, ids: Sequence[int]) -> str:
    """Text from the first call on, as sampled; empty when a parser gives no spans."""
    spans = [call.token_span for call in calls]
    if not spans or spans[0] is None:
        return ""
    return tokenizer.decode(list(ids[spans[0][0] :]))


def _problem(call: Any) -> str | None:
    """What the parser objects to, in words for the model."""
    if call.status == "unclosed_block":
        return "the call has no end: it was cut off, or its closing tag is missing"
    if call.status == "malformed_structure":
        return "the call does not have the form that tool calls must have"
    if call.status == "invalid_json" and not (call.name and isinstance(call.arguments, dict)):
        return f"the call is not valid JSON: {explain_json(call.raw)}"
    return None


def explain_json(text: str) -> str:
    """Why a text isn't JSON."""
    import json

    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return json_problem(error)
    return "it is not one JSON object"
