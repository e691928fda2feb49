"""OpenAI's text completions: a prompt as text or as token ids, nothing rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentfly.models.dialects.chat import usage
from agentfly.models.dialects.common import (
    Answer,
    ChatRequest,
    RequestRefused,
    event,
    list_of,
    number,
    openai_error,
    whole,
)


class CompletionsDialect:
    """`POST /v1/completions`."""

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        for name in ("echo", "suffix"):
            if body.get(name):
                raise RequestRefused(f"{name} is not supported")
        if (whole(body, "n") or 1) != 1 or (whole(body, "best_of") or 1) != 1:
            raise RequestRefused("n and best_of must be 1: send several calls")
        stop = body.get("stop") or []
        limit = whole(body, "max_tokens")
        return ChatRequest(
            model=str(body.get("model", "")),
            messages=[],
            prompt=_prompt(body.get("prompt")),
            max_tokens=16 if limit is None else limit,
            temperature=number(body, "temperature"),
            top_p=number(body, "top_p"),
            seed=whole(body, "seed"),
            stop=(stop,) if isinstance(stop, str) else tuple(map(str, list_of(stop, "stop"))),
            stream=bool(body.get("stream")),
            usage_event=bool((body.get("stream_options") or {}).get("include_usage")),
            logprobs=body.get("logprobs") is not None,
            token_ids=bool(body.get("return_token_ids")),
        )

    def write(self, request: ChatRequest, answer: Answer) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": 0,
            "text": answer.message["content"],
            "finish_reason": answer.finish_reason,
            "logprobs": _logprobs(answer) if request.logprobs else None,
        }
        if request.token_ids:
            choice |= {"token_ids": list(answer.ids), "prompt_token_ids": list(answer.prompt_ids)}
        head = _head(request, answer.id, answer.created)
        return {**head, "choices": [choice], "usage": usage(answer)}

    def refuse(self, error: RequestRefused) -> dict[str, Any]:
        return openai_error(error)

    def emitter(self, request: ChatRequest, id: str, created: int) -> CompletionsEmitter:
        return CompletionsEmitter(self, request, id, created)


class CompletionsEmitter:
    """Chunks of a text completion."""

    def __init__(self, dialect: CompletionsDialect, request: ChatRequest, id: str, created: int) -> None:
        self._dialect = dialect
        self._request = request
        self._head = _head(request, id, created)

    def begin(self) -> str:
        return ""

    def text(self, delta: str) -> str:
        choice = {"index": 0, "text": delta, "finish_reason": None, "logprobs": None}
        return event({**self._head, "choices": [choice]})

    def end(self, answer: Answer, told: int) -> str:
        whole_answer = self._dialect.write(self._request, answer)
        (choice,) = whole_answer["choices"]
        choice["text"] = choice["text"][told:]
        events = event({**self._head, "choices": [choice]})
        if self._request.usage_event:
            events += event({**self._head, "choices": [], "usage": usage(answer)})
        return events + event("[DONE]")

    def failed(self, error: RequestRefused) -> str:
        return event(self._dialect.refuse(error))


def _head(request: ChatRequest, id: str, created: int) -> dict[str, Any]:
    return {"id": id, "object": "text_completion", "created": created, "model": request.model}


def _prompt(value: Any) -> str | tuple[int, ...]:
    if isinstance(value, str):
        return value
    ids = list_of(value, "prompt")
    if ids and all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        return tuple(ids)
    raise RequestRefused("prompt must be a text or a list of token ids: send several calls for several prompts")


def _logprobs(answer: Answer) -> dict[str, Any]:
    offsets, place = [], 0
    for text in answer.tokens:
        offsets.append(place)
        place += len(text)
    return {
        "tokens": list(answer.tokens),
        "token_logprobs": list(answer.logprobs),
        "top_logprobs": None,
        "text_offset": offsets,
    }
