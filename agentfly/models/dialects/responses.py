"""OpenAI's Responses, without state on our side: the whole conversation comes with each call."""

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
    openai_error,
    refuse_forced_tools,
    text_of,
    tool_of,
    whole,
)
from agentfly.models.engine import Message


class ResponsesDialect:
    """`POST /v1/responses`."""

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        for name in ("previous_response_id", "conversation", "background"):
            if body.get(name):
                raise RequestRefused(f"{name} is not supported: nothing is stored, send the whole conversation")
        shape = object_of(object_of(body.get("text") or {}, "text").get("format") or {}, "text.format")
        if shape.get("type", "text") != "text":
            raise RequestRefused("text.format is not supported: the policy writes what it writes")
        messages: list[Message] = []
        if body.get("instructions"):
            messages.append({"role": "system", "content": text_of(body["instructions"], "instructions")})
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list_of(given, "input")
        for item in items:
            _append(messages, object_of(item, "an item of the input"))
        tools = [_tool(tool) for tool in list_of(body.get("tools"), "tools")]
        return ChatRequest(
            model=str(body.get("model", "")),
            messages=messages,
            tools=tools if refuse_forced_tools(body.get("tool_choice")) else [],
            max_tokens=whole(body, "max_output_tokens"),
            temperature=number(body, "temperature"),
            top_p=number(body, "top_p"),
            stream=bool(body.get("stream")),
        )

    def write(self, request: ChatRequest, answer: Answer) -> dict[str, Any]:
        cut = answer.finish_reason == "length"
        return {
            **_head(request, answer.id, answer.created),
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": _output(answer),
            "usage": {
                "input_tokens": len(answer.prompt_ids),
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": len(answer.ids),
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": len(answer.prompt_ids) + len(answer.ids),
            },
        }

    def refuse(self, error: RequestRefused) -> dict[str, Any]:
        return openai_error(error)

    def emitter(self, request: ChatRequest, id: str, created: int) -> ResponsesEmitter:
        return ResponsesEmitter(self, request, id, created)


class ResponsesEmitter:
    """Events of a response."""

    def __init__(self, dialect: ResponsesDialect, request: ChatRequest, id: str, created: int) -> None:
        self._dialect = dialect
        self._request = request
        self._head = {**_head(request, id, created), "status": "in_progress", "output": [], "usage": None}
        self._number = 0
        self._opened = False
        self._item = f"msg_{id}"

    def begin(self) -> str:
        return self._event("response.created", response=self._head)

    def text(self, delta: str) -> str:
        events = ""
        if not self._opened:
            self._opened = True
            item = {"id": self._item, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
            part = {"type": "output_text", "text": "", "annotations": []}
            events += self._event("response.output_item.added", output_index=0, item=item)
            events += self._part("response.content_part.added", part=part)
        return events + self._part("response.output_text.delta", delta=delta, logprobs=[])

    def end(self, answer: Answer, told: int) -> str:
        whole_answer = self._dialect.write(self._request, answer)
        whole_answer["id"] = self._head["id"]
        events = self.text(answer.message["content"][told:]) if len(answer.message["content"]) > told else ""
        for index, item in enumerate(whole_answer["output"]):
            if item["type"] == "message":
                item["id"] = self._item
                part = item["content"][0]
                events += self._part("response.output_text.done", text=part["text"], logprobs=[])
                events += self._part("response.content_part.done", part=part)
            else:
                events += self._event("response.output_item.added", output_index=index, item=item)
            events += self._event("response.output_item.done", output_index=index, item=item)
        name = "response.incomplete" if whole_answer["incomplete_details"] else "response.completed"
        return events + self._event(name, response=whole_answer)

    def failed(self, error: RequestRefused) -> str:
        return self._event("error", code=error.code, message=str(error), param=None)

    def _part(self, name: str, **fields: Any) -> str:
        return self._event(name, item_id=self._item, output_index=0, content_index=0, **fields)

    def _event(self, name: str, **fields: Any) -> str:
        self._number += 1
        return event({"type": name, "sequence_number": self._number - 1, **fields}, name)


def _head(request: ChatRequest, id: str, created: int) -> dict[str, Any]:
    return {
        "id": id,
        "object": "response",
        "created_at": created,
        "model": request.model,
        "error": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "tool_choice": "auto",
        "tools": [{"type": "function", "strict": False, **tool["function"]} for tool in request.tools],
    }


def _output(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    calls = answer.message.get("tool_calls") or []
    if answer.message["content"] or not calls:
        part = {"type": "output_text", "text": answer.message["content"], "annotations": []}
        items.append(
            {
                "id": f"msg_{answer.id}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    for call in calls:
        function = call["function"]
        items.append(
            {
                "id": f"fc_{call['id']}",
                "type": "function_call",
                "status": "completed",
                "call_id": call["id"],
                "name": function["name"],
                "arguments": function["arguments"],
            }
        )
    return items


def _append(messages: list[Message], item: Mapping[str, Any]) -> None:
    """One item of the input; what the assistant said in one turn comes in several."""
    match item.get("type", "message"):
        case "message":
            role = item.get("role")
            if role not in ("system", "developer", "user", "assistant"):
                raise RequestRefused(f"an item of the input has the role {role!r}")
            content = text_of(item.get("content"), f"the content of a message of {role}")
            messages.append({"role": "system" if role == "developer" else role, "content": content})
        case "function_call":
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            call = call_of(item.get("call_id", ""), item.get("name", ""), item.get("arguments", "{}"))
            messages[-1]["tool_calls"] = [*messages[-1].get("tool_calls", []), call]
        case "function_call_output":
            output = item.get("output")
            text = output if isinstance(output, (str, list)) else json.dumps(output, ensure_ascii=False)
            content = text_of(text, "the output of a call")
            messages.append({"role": "tool", "content": content, "tool_call_id": str(item.get("call_id", ""))})
        case "reasoning":
            return
        case other:
            raise RequestRefused(f"an item of the input has the type {other!r}, which is not supported")


def _tool(value: Any) -> dict[str, Any]:
    given = object_of(value, "a tool")
    if given.get("type") != "function":
        raise RequestRefused(f"a tool of type {given.get('type')!r} is not supported: only functions are")
    return tool_of(given.get("name"), given.get("description"), given.get("parameters"))
