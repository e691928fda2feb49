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

    An answer to a tool call must be bridged. Where a user's message changes what stands before it, the
    bridge must say so: then it starts a new segment.

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


def find_misread(grammar: Bridged) -> str:
    """Why the parser can't read the calls that the template writes; empty when it can."""
    template, tools = grammar.template, [tool_schema("probe"), tool_schema("other")]
    turn, user = _calls(1), {"role": "user", "content": "How much?"}
    # Without the generation prompt: some open thoughts there that the history then leaves out.
    before = template.text([user], tools, generation_prompt=False)
    written = template.text([user, turn], tools, generation_prompt=False)
    start = _common_prefix(before, written)
    if user["content"] not in written[:start]:
        return ""  # the template forgets the user; check_bridge says so
    sampled = written[start:]
    if grammar.closing[1]:
        sampled = sampled.partition(grammar.closing[1])[0]
    parsed = grammar.parse(template.encode(sampled), tools, template.encode(before)).calls
    calls = [read_call(call, "") for call in parsed]
    if [(call.name, call.arguments) for call in calls] == _written(turn):
        return ""
    return (
        f"its tool calls ({sampled[:60]!r}...) are not what the parser reads: choose another by the family "
        "`generic:<parser>`, or `generic:hermes` to have tools written and read as JSON in <tool_call> tags"
    )


def _play(grammar: Bridged, shape: _Shape) -> str | None:
    """How the bridge differs from the full render; None when it doesn't."""
    messages = list(shape.opening)
    prompt: list[int] | None = None
    for turn, followers in shape.rounds:
        # A conversation that goes on after anything but tool calls is rare, and may start a new segment.
        strict = "tool_calls" in turn
        try:
            prompt = prompt or grammar.template.encode(grammar.template.text(messages, shape.tools))
            prompt, problem = _round(grammar, shape, messages, prompt, turn, followers)
        except ConfigError as error:
            return str(error) if strict else None
        if problem is not None and (strict or prompt is not None):
            return problem
        messages += [turn, *followers]
    return None


def _round(
    grammar: Bridged,
    shape: _Shape,
    messages: Sequence[Mapping[str, Any]],
    prompt: Sequence[int],
    turn: Mapping[str, Any],
    followers: Sequence[Mapping[str, Any]],
) -> tuple[list[int] | None, str | None]:
    """Bridge one turn: the next prompt, None where the bridge declines, and what is wrong."""
    template = grammar.template
    close_id, close = grammar.closing
    head = template.text(messages, shape.tools)
    full = template.text([*messages, turn, *followers], shape.tools)
    sampled, problem = str(turn["content"]), None
    if not full.startswith(head):
        problem = _what_changed(template, messages, shape.tools, head, full)
    else:
        written, found, _ = full[len(head) :].partition(close)
        if not found:
            problem = "no special token ends the assistant's turn"
        elif "tool_calls" in turn:
            sampled = written
        elif written != sampled:
            problem = "it alters the assistant's text"
    completion = [*template.encode(sampled), close_id]
    history = cast(Sequence[Message], [*messages, turn])
    bridged = grammar.bridge(prompt, completion, cast(Sequence[Message], followers), shape.tools, history)
    if bridged is None:
        return None, problem or "an earlier part of the conversation changes when messages are added"
    # What the model said may be tokenised otherwise than in the full text; what is added after it may not.
    added = bridged[len(prompt) + len(completion) - 1 :]
    if template.encode(full)[-len(added) :] != added:
        return bridged, problem or "what it adds after a turn depends on the turns before it"
    return bridged, None


def _what_changed(
    template: ChatTemplate, messages: Sequence[Mapping[str, Any]], tools: Tools, head: str, full: str
) -> str:
    opened = head.removeprefix(template.text(messages, tools, generation_prompt=False))
    if full.startswith(head.removesuffix(opened)):
        return f"it opens the assistant's turn with {opened!r} and does not keep that in the history"
    return "what stands before the assistant's turn changes when messages come after it"


def _common_prefix(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def _written(turn: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in turn["tool_calls"]]


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
