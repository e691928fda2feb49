"""Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentfly.models.dialects.common import (
    Answer,
    ChatRequest,
    RequestRefused,
    call_of,
    event,
    list_of,
    number,
    object_of,
    refuse_forced_tools,
    text_of,
    tool_of,
    whole,
)
from agentfly.models.engine import Message

_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
_ERRORS = {401: "authentication_error", 429: "rate_limit_error", 503: "overloaded_error"}


class AnthropicDialect:
    """`POST /v1/messages`."""

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        messages: list[Message] = []
        if body.get("system"):
            messages.append({"role": "system", "content": text_of(body["system"], "system")})
        for item in list_of(body.get("messages"), "messages"):
            _append(messages, object_of(item, "a message"))
        tools = [_tool(tool) for tool in list_of(body.get("tools"), "tools")]
        return ChatRequest(
            model=str(body.get("model", "")),
            messages=messages,
            tools=tools if refuse_forced_tools(body.get("tool_choice")) else [],
            max_tokens=whole(body, "max_tokens"),
            temperature=number(body, "temperature"),
            top_p=number(body, "top_p"),
            stop=tuple(map(str, list_of(body.get("stop_sequences"), "stop_sequences"))),
            stream=bool(body.get("stream")),
        )

    def write(self, request: ChatRequest, answer: Answer) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if answer.message["content"] or not answer.message.get("tool_calls"):
            content.append({"type": "text", "text": answer.message["content"]})
        content += [_tool_use(call) for call in answer.message.get("tool_calls", ())]
        return {
            "id": answer.id,
            "type": "message",
            "role": "assistant",
            "model": request.model,
            "content": content,
            "stop_reason": _reason(answer),
            "stop_sequence": answer.stop,
            "usage": {"input_tokens": len(answer.prompt_ids), "output_tokens": len(answer.ids)},
        }

    def refuse(self, error: RequestRefused) -> dict[str, Any]:
        kind = _ERRORS.get(error.status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": str(error)}}

    def emitter(self, request: ChatRequest, id: str, created: int) -> AnthropicEmitter:
        return AnthropicEmitter(self, request, id)


class AnthropicEmitter:
    """Events of a message."""

    def __init__(self, dialect: AnthropicDialect, request: ChatRequest, id: str) -> None:
        self._dialect = dialect
        self._request = request
        self._id = id
        self._opened = False

    def begin(self) -> str:
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        return _event("message_start", message=message)

    def text(self, delta: str) -> str:
        events = ""
        if not self._opened:
            self._opened = True
            events = _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        return events + _event("content_block_delta", index=0, delta={"type": "text_delta", "text": delta})

    def end(self, answer: Answer, told: int) -> str:
        whole_answer = self._dialect.write(self._request, answer)
        events = ""
        for index, block in enumerate(whole_answer["content"]):
            if block["type"] == "text":
                if not self._opened or len(block["text"]) > told:
                    events += self.text(block["text"][told:])
            else:
                events += _event("content_block_start", index=index, content_block={**block, "input": {}})
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"], ensure_ascii=False)}
                events += _event("content_block_delta", index=index, delta=delta)
            events += _event("content_block_stop", index=index)
        ended = {name: whole_answer[name] for name in ("stop_reason", "stop_sequence")}
        events += _event("message_delta", delta=ended, usage=whole_answer["usage"])
        return events + _event("message_stop")

    def failed(self, error: RequestRefused) -> str:
        return event(self._dialect.refuse(error), "error")


def _event(name: str, **fields: Any) -> str:
    return event({"type": name, **fields}, name)


def _reason(answer: Answer) -> str:
    return "stop_sequence" if answer.stop is not None else _REASONS[answer.finish_reason]


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": json.loads(function["arguments"]),
    }


def _append(messages: list[Message], item: Mapping[str, Any]) -> None:
    """One message; its blocks are text, calls and their results in any order."""
    role = item.get("role")
    if role not in ("user", "assistant"):
        raise RequestRefused(f"a message has the role {role!r}")
    content = item.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list_of(content, "content")
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    results = 0
    for value in blocks:
        block = object_of(value, "a block of content")
        match block.get("type"):
            case "text":
                texts.append(str(block.get("text", "")))
            case "tool_use":
                calls.append(call_of(block.get("id", ""), block.get("name", ""), block.get("input")))
            case "tool_result":
                text = text_of(block.get("content"), "the content of a tool_result")
                messages.append({"role": "tool", "content": text, "tool_call_id": str(block.get("tool_use_id", ""))})
                results += 1
            case "thinking" | "redacted_thinking":
                continue
            case other:
                raise RequestRefused(f"a block of type {other!r} is not supported")
    if texts or calls or not results:
        message: Message = {"role": role, "content": "".join(texts)}
        if calls:
            message["tool_calls"] = calls
        messages.append(message)


def _tool(value: Any) -> dict[str, Any]:
    given = object_of(value, "a tool")
    if given.get("type", "custom") != "custom":
        raise RequestRefused(f"a tool of type {given.get('type')!r} is not supported")
    return tool_of(given.get("name"), given.get("description"), given.get("input_schema"))
