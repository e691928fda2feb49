"""What the model said in one turn: the assistant message, and its tool calls, good and malformed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentfly.models.engine import Message

# Deeper arguments would exhaust the recursion of whoever walks them later.
_MAX_DEPTH = 64


@dataclass(frozen=True)
class ParsedCall:
    """One tool call of a turn.

    Attributes:
        id: unique in the conversation; the observation names it.
        name: the tool; None when the call gives none that can be read.
        arguments: a JSON object; None when they can't be read.
        error: why the call is malformed, in words for the model; None for a good call.
        raw: the call's text as it was sampled, without its delimiters.
    """

    id: str
    name: str | None
    arguments: dict[str, Any] | None
    error: str | None
    raw: str


@dataclass(frozen=True)
class AssistantTurn:
    """One completion, understood.

    Attributes:
        message: in OpenAI form; good calls stand in `tool_calls` (arguments as a JSON string),
            malformed ones stay in `content` as they were sampled.
        calls: every call in order, malformed ones included.
        finish_reason: `stop`, `length`, or what a chat endpoint said.
        truncated: the completion was cut by a token limit.
        completion_tokens: tokens sampled; 0 when the engine doesn't tell.
    """

    message: Message
    calls: list[ParsedCall]
    finish_reason: str
    truncated: bool
    completion_tokens: int = 0


@dataclass(frozen=True)
class RawCall:
    """A call as a grammar found it, before anything about it is believed.

    Attributes:
        text: between the delimiters.
        sampled: delimiters included.
        name, arguments: what the grammar made of it, of any type.
        problem: what the grammar objects to; None when it read the call.
        id: the call's own, in formats that have one.
    """

    text: str
    sampled: str
    name: object = None
    arguments: object = None
    problem: str | None = None
    id: str | None = None


def call_id(turn: int, index: int) -> str:
    """Id of a call: nine letters and digits, the only form that every known chat template takes."""
    return f"call{turn:03d}{index:02d}"


def read_call(call: RawCall, call_id: str) -> ParsedCall:
    """Check what a grammar found; never raises."""
    name = call.name if isinstance(call.name, str) and call.name else None
    if call.problem is not None:
        return ParsedCall(call_id, name, None, call.problem, call.text)
    if name is None:
        nameless = 'the call names no tool: write {"name": "<tool>", "arguments": {...}}'
        return ParsedCall(call_id, None, None, nameless, call.text)
    arguments, error = read_arguments(call.arguments)
    if error is None and not _encodable(name):
        error = "the tool's name holds half of a surrogate pair, which is no text"
    return ParsedCall(call_id, name, arguments if error is None else None, error, call.text)


def read_arguments(value: object) -> tuple[dict[str, Any] | None, str | None]:
    """The arguments of a call, given as an object or as JSON text, or why they can't be used."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError) as error:
            return None, f"the arguments are not valid JSON: {json_problem(error)}"
    if value is None:
        value = {}
    if not isinstance(value, dict):
        return None, f"the arguments must be a JSON object, not {_kind(value)}"
    problem = _value_problem(value)
    return (None, problem) if problem else (value, None)


def json_problem(error: ValueError | RecursionError) -> str:
    """A JSON error in words that a model can act on."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return str(error)


def assistant_message(
    content: str, reasoning: str | None, raw_calls: Sequence[RawCall], calls: Sequence[ParsedCall]
) -> Message:
    """The message of a turn.

    Args:
        content: text before the first call, and for a turn of malformed calls alone the text after it too.
        reasoning: the model's thoughts, when it had any.
        raw_calls: as sampled, one for each of `calls`.
        calls: the same, checked.
    """
    malformed = [raw.sampled for raw, call in zip(raw_calls, calls, strict=True) if call.error is not None]
    if malformed and len(malformed) < len(calls):
        content = "\n".join(filter(None, [content, *malformed]))
    message: Message = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if good := [as_openai(call) for call in calls if call.error is None]:
        message["tool_calls"] = good
    return message


def as_openai(call: ParsedCall) -> dict[str, Any]:
    """A good call in OpenAI form."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def with_plain_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose tool calls carry their arguments as objects, as chat templates want them."""
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    plain = []
    for call in calls:
        function = dict(call.get("function") or {})
        arguments, _ = read_arguments(function.get("arguments"))
        function["arguments"] = {} if arguments is None else arguments
        plain.append({**call, "function": function})
    return {**message, "tool_calls": plain}


def answers_without_calls_as_user(messages: Sequence[Message]) -> list[Message] | None:
    """The messages, with tools' answers to calls that aren't in the messages told by the user; None without any."""
    known = {call.get("id") for message in messages for call in message.get("tool_calls") or ()}
    if all(message["role"] != "tool" or message.get("tool_call_id") in known for message in messages):
        return None
    told: list[Message] = []
    for message in messages:
        if message["role"] != "tool" or message.get("tool_call_id") in known:
            told.append(message)
        elif told and told[-1]["role"] == "user":
            told[-1] = {"role": "user", "content": f"{told[-1]['content']}\n\n{message['content']}"}
        else:
            told.append({"role": "user", "content": message["content"]})
    return told


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", list: "a list", str: "a string"}
    return kinds.get(type(value), type(value).__name__)


def _value_problem(value: object) -> str | None:
    """What makes a JSON value unusable further on: depth, numbers that JSON doesn't have, broken text."""
    pending: list[tuple[object, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return f"the arguments are nested more than {_MAX_DEPTH} levels deep"
        if isinstance(item, float) and not math.isfinite(item):
            return "the arguments hold a number that is not finite, which JSON does not have"
        if isinstance(item, str) and not _encodable(item):
            return "the arguments hold half of a surrogate pair, which is no text"
        pending.extend((child, depth + 1) for child in _children(item))
    return None


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else ()


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
