"""OpenAI's Chat Completions, with `return_token_ids` as vLLM has it."""

from __future__ import annotations

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


class ChatDialect:
    """`POST /v1/chat/completions`."""

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        if (whole(body, "n") or 1) != 1:
            raise RequestRefused("n must be 1: send several calls")
        if (whole(body, "top_logprobs") or 0) > 0:
            raise RequestRefused("top_logprobs is not supported: logprobs gives those of the sampled tokens")
        if object_of(body.get("response_format") or {}, "response_format").get("type", "text") != "text":
            raise RequestRefused("response_format is not supported: the policy writes what it writes")
        stop = body.get("stop") or []
        tools = [_tool(tool) for tool in list_of(body.get("tools"), "tools")]
        return ChatRequest(
            model=str(body.get("model", "")),
            messages=[_message(each) for each in list_of(body.get("messages"), "messages")],
            tools=tools if refuse_forced_tools(body.get("tool_choice")) else [],
            max_tokens=whole(body, "max_completion_tokens", "max_tokens"),
            temperature=number(body, "temperature"),
            top_p=number(body, "top_p"),
            seed=whole(body, "seed"),
            stop=(stop,) if isinstance(stop, str) else tuple(map(str, list_of(stop, "stop"))),
            stream=bool(body.get("stream")),
            usage_event=bool((body.get("stream_options") or {}).get("include_usage")),
            logprobs=bool(body.get("logprobs")),
            token_ids=bool(body.get("return_token_ids")),
        )

    def write(self, request: ChatRequest, answer: Answer) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": _written(answer.message),
            "finish_reason": answer.finish_reason,
            "logprobs": _logprobs(answer) if request.logprobs else None,
        }
        whole_answer = {
            "id": answer.id,
            "object": "chat.completion",
            "created": answer.created,
            "model": request.model,
            "choices": [choice],
            "usage": usage(answer),
        }
        if request.token_ids:
            choice["token_ids"] = list(answer.ids)
            whole_answer["prompt_token_ids"] = list(answer.prompt_ids)
        return whole_answer

    def refuse(self, error: RequestRefused) -> dict[str, Any]:
        return openai_error(error)

    def emitter(self, request: ChatRequest, id: str, created: int) -> ChatEmitter:
        return ChatEmitter(self, request, id, created)


class ChatEmitter:
    """Chunks of a chat completion."""

    def __init__(self, dialect: ChatDialect, request: ChatRequest, id: str, created: int) -> None:
        self._dialect = dialect
        self._request = request
        self._head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": request.model}

    def begin(self) -> str:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, delta: str) -> str:
        return self._chunk({"content": delta})

    def end(self, answer: Answer, told: int) -> str:
        message = answer.message
        events = self.text(message["content"][told:]) if len(message["content"]) > told else ""
        if thoughts := message.get("reasoning_content"):
            events += self._chunk({"reasoning_content": thoughts})
        calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", ()))]
        if calls:
            events += self._chunk({"tool_calls": calls})
        last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": answer.finish_reason}
        if self._request.logprobs:
            last["logprobs"] = _logprobs(answer)
        extra: dict[str, Any] = {}
        if self._request.token_ids:
            last["token_ids"] = list(answer.ids)
            extra["prompt_token_ids"] = list(answer.prompt_ids)
        events += event({**self._head, "choices": [last], **extra})
        if self._request.usage_event:
            events += event({**self._head, "choices": [], "usage": usage(answer)})
        return events + event("[DONE]")

    def failed(self, error: RequestRefused) -> str:
        return event(self._dialect.refuse(error))

    def _chunk(self, delta: dict[str, Any]) -> str:
        return event({**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def usage(answer: Answer) -> dict[str, int]:
    """Tokens counted."""
    prompt, sampled = len(answer.prompt_ids), len(answer.ids)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _written(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": "assistant", "content": message["content"]}
    for name in ("reasoning_content", "tool_calls"):
        if message.get(name):
            written[name] = message[name]
    if "tool_calls" in written and not message["content"]:
        written["content"] = None
    return written


def _logprobs(answer: Answer) -> dict[str, Any]:
    told = [
        {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "replace")), "top_logprobs": []}
        for text, logprob in zip(answer.tokens, answer.logprobs, strict=True)
    ]
    return {"content": told, "refusal": None}


def _message(value: Any) -> Message:
    given = object_of(value, "a message")
    role = given.get("role")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise RequestRefused(f"a message has the role {role!r}")
    message: Message = {
        "role": "system" if role == "developer" else role,
        "content": text_of(given.get("content"), f"the content of a message of {role}"),
    }
    thoughts = given.get("reasoning_content") or given.get("reasoning")
    if role == "assistant" and isinstance(thoughts, str):
        message["reasoning_content"] = thoughts
    if calls := list_of(given.get("tool_calls"), "tool_calls"):
        message["tool_calls"] = [_call(call) for call in calls]
    if role == "tool":
        message["tool_call_id"] = str(given.get("tool_call_id", ""))
    return message


def _call(value: Any) -> dict[str, Any]:
    given = object_of(value, "a tool call")
    function = object_of(given.get("function"), "the function of a tool call")
    return call_of(given.get("id", ""), function.get("name", ""), function.get("arguments", "{}"))


def _tool(value: Any) -> dict[str, Any]:
    function = object_of(object_of(value, "a tool").get("function"), "the function of a tool")
    return tool_of(function.get("name"), function.get("description"), function.get("parameters"))
