"""Proof at start-up that a template's bridge equals its full render, on conversations of every shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from agentfly.errors import ConfigError
from agentfly.models.engine import Message
from agentfly.rollout.grammar import ParsedText, Tools
from agentfly.rollout.template import ChatTemplate, tool_schema
from agentfly.rollout.turns import call_id, read_call

_UNICODE = 'naïve 中文 🙂 \\ "quoted" {x}\n\n  indented'


class Bridged(Protocol):
    """The part of a grammar that is checked."""

    @property
    def template(self) -> ChatTemplate: ...

    @property
    def closing(self) -> tuple[int, str]: ...

    def parse(self, completion_ids: Sequence[int], tools: Tools, prompt_ids: Sequence[int]) -> ParsedText: ...

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        new_messages: Sequence[Message],
        tools: Tools,
        history: Sequence[Message],
    ) -> list[int] | None: ...


@dataclass(frozen=True)
class _Shape:
    """A conversation: its opening, then turns of the assistant, each with what follows it."""

    name: str
    opening: Sequence[Mapping[str, Any]]
    rounds: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]
    tools: Sequence[Mapping[str, Any]] = field(default_factory=lambda: [tool_schema("probe"), tool_schema("other")])


def check_bridge(grammar: Bridged) -> None:
    """Play every shape; the bridged stream must be the full render's, token by token.

    Raises:
        ConfigError: naming the first shape that differs, and how.
    """
    for shape in _shapes():
        problem = _play(grammar, shape)
        if problem is not None:
            raise ConfigError(
                f"the chat template of {grammar.template.name} can't be trained on: {problem} ({shape.name}); name a "
                "family that the renderers library knows, or use a template that only appends"
            )


def _play(grammar: Bridged, shape: _Shape) -> str | None:
    """How the bridge differs from the full render; None when it doesn't."""
    template = grammar.template
    close_id, close = grammar.closing
    messages = list(shape.opening)
    try:
        prompt = template.encode(template.text(messages, shape.tools))
        for turn, followers in shape.rounds:
            head = template.text(messages, shape.tools)
            full = template.text([*messages, turn, *followers], shape.tools)
            end = full.find(close, len(head))
            if not full.startswith(head) or end < 0:
                return "what stands before the assistant's turn changes when messages come after it"
            sampled = full[len(head) : end]
            if not turn.get("tool_calls") and sampled != turn["content"]:
                return "it alters the assistant's text"
            completion = [*template.encode(sampled), close_id]
            if problem := _misread(grammar, turn, completion, prompt, shape.tools):
                return problem
            history = cast(Sequence[Message], [*messages, turn])
            bridged = grammar.bridge(prompt, completion, cast(Sequence[Message], followers), shape.tools, history)
            if bridged is None:
                return "an earlier part of the conversation changes when messages are added"
            if bridged != template.encode(full):
                return "its tokens run over the borders between messages"
            prompt = bridged
            messages += [turn, *followers]
    except ConfigError as error:
        return str(error)
    return None


def _misread(
    grammar: Bridged, turn: Mapping[str, Any], completion: Sequence[int], prompt: Sequence[int], tools: Tools
) -> str | None:
    """Calls that the template writes must be those that the parser reads."""
    wanted = [
        (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in turn.get("tool_calls", ())
    ]
    parsed = [read_call(call, "") for call in grammar.parse(completion, tools, prompt).calls]
    if [(call.name, call.arguments) for call in parsed] == wanted:
        return None
    return "its tool calls are not what the parser reads: choose another one (family `generic:<parser>`)"


def _shapes() -> Iterator[_Shape]:
    system = {"role": "system", "content": "Be brief."}
    user = {"role": "user", "content": "How much?"}
    after = {"role": "user", "content": _UNICODE}
    said = {"role": "assistant", "content": _UNICODE}
    silent = {"role": "assistant", "content": ""}
    answers = [_answer(0, "1"), _answer(1, _UNICODE)]
    yield _Shape("a dialogue", [system, user], [(said, [user]), (silent, [after]), (said, [user])], [])
    yield _Shape("a dialogue with tools", [system, user], [(said, [after]), (said, [user])])
    rounds = [
        (_calls(1), answers[:1]),
        (_calls(2), answers),
        (_calls(1, "Let me see."), [_answer(0, "")]),
        (said, [user]),
    ]
    yield _Shape("tool calls", [system, user], rounds)
    yield _Shape("tool calls without a system message", [user], rounds)
    yield _Shape("an answer of blanks", [user], [(_calls(1), [_answer(0, "  a \n")]), (_calls(1), answers[:1])])
    yield _Shape("a malformed call", [user], [(said, answers[:1]), (_calls(1), answers), (said, [user])])


def _calls(count: int, content: str = "") -> dict[str, Any]:
    calls = []
    for index in range(count):
        arguments = json.dumps({"text": _UNICODE, "n": [1, 2.5, None, True]}, ensure_ascii=False)
        function = {"name": ("probe", "other")[index], "arguments": arguments}
        calls.append({"id": call_id(0, index), "type": "function", "function": function})
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _answer(index: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "name": ("probe", "other")[index], "tool_call_id": call_id(0, index)}
