"""What all dialects are read into and written from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentfly.models.engine import Message


class RequestRefused(Exception):
    """A call that can't be answered.

    Attributes:
        status: of HTTP.
        code: short, for programs.
        retry_after: seconds after which it may be tried again; None when that is no use.
    """

    def __init__(
        self, message: str, *, status: int = 400, code: str = "invalid_request", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


@dataclass(frozen=True)
class ChatRequest:
    """One call, in any dialect.

    Attributes:
        messages: the conversation so far; tools: function schemas in OpenAI form.
        prompt: of a text completion, which has no messages.
        max_tokens, temperature, top_p, seed: None where the call doesn't say.
        stop: texts that end the completion.
        stream: the answer is wanted as events.
        usage_event: a stream ends with an event of its own that counts tokens.
        logprobs, token_ids: wanted in the answer.
    """

    model: str
    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    prompt: str | tuple[int, ...] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    usage_event: bool = False
    logprobs: bool = False
    token_ids: bool = False


@dataclass(frozen=True)
class Answer:
    """What the policy said to one call.

    Attributes:
        id: unique among answers.
        created: seconds since 1970.
        message: the assistant's.
        finish_reason: `stop`, `tool_calls` or `length`.
        prompt_ids, ids, logprobs: exactly what was sampled, and after what.
        tokens: text of each sampled token.
        stop: the stop text that ended it.
    """

    id: str
    created: int
    message: Message
    finish_reason: str
    prompt_ids: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float]
    tokens: Sequence[str] = ()
    stop: str | None = None


class Emitter(Protocol):
    """Writes one answer as server-sent events, while it is sampled."""

    def begin(self) -> str:
        """Events before the first text."""
        ...

    def text(self, delta: str) -> str:
        """Events for a piece of the message's text."""
        ...

    def end(self, answer: Answer, told: int) -> str:
        """Events for all that is left; `told` characters of the text have been sent."""
        ...

    def failed(self, error: RequestRefused) -> str:
        """Events for a failure in the middle."""
        ...


class Dialect(Protocol):
    """One wire format."""

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        """Understand a call.

        Raises:
            RequestRefused: it is malformed, or asks for what isn't there.
        """
        ...

    def write(self, request: ChatRequest, answer: Answer) -> dict[str, Any]:
        """The whole answer."""
        ...

    def refuse(self, error: RequestRefused) -> dict[str, Any]:
        """The body of an error."""
        ...

    def emitter(self, request: ChatRequest, id: str, created: int) -> Emitter:
        """For a stream."""
        ...


def event(data: Any, name: str | None = None) -> str:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)}\n\n"


def object_of(value: Any, where: str) -> Mapping[str, Any]:
    """A JSON object, or a refusal that says where it should be."""
    if not isinstance(value, Mapping):
        raise RequestRefused(f"{where} must be an object")
    return value


def list_of(value: Any, where: str) -> list[Any]:
    """A JSON list; None is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestRefused(f"{where} must be a list")
    return value


def number(body: Mapping[str, Any], name: str) -> float | None:
    """A number of the call, None where it isn't said."""
    value = body.get(name)
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise RequestRefused(f"{name} must be a number")


def whole(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of several whole numbers that is said."""
    for name in names:
        if (value := number(body, name)) is not None:
            return int(value)
    return None


def text_of(content: Any, where: str) -> str:
    """Text of a message's content: a string, nothing, or a list of text parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = []
    for part in list_of(content, where):
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            parts.append(part["text"])
        else:
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise RequestRefused(f"{where} holds a part of type {kind!r}: only text is understood")
    return "".join(parts)


def call_of(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A tool call in OpenAI form."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": str(id), "type": "function", "function": {"name": str(name), "arguments": text}}


def tool_of(name: Any, description: Any, parameters: Any) -> dict[str, Any]:
    """A function's schema in OpenAI form."""
    if not isinstance(name, str) or not name:
        raise RequestRefused("a tool has no name")
    schema = parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description or "", "parameters": schema}}


def openai_error(error: RequestRefused) -> dict[str, Any]:
    """A refusal as OpenAI's clients read it."""
    return {"error": {"message": str(error), "type": error.code, "code": error.code, "param": None}}


def refuse_forced_tools(choice: Any) -> bool:
    """Whether tools may be used; a policy can't be forced to use one."""
    kind = choice.get("type") if isinstance(choice, Mapping) else choice
    if kind in (None, "auto"):
        return True
    if kind == "none":
        return False
    raise RequestRefused(f"tool_choice {kind!r} is not supported: the policy decides; leave it out, or use none")
