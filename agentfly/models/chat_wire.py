"""Messages as they go over the wire to a chat endpoint, and its answers as ours."""

from __future__ import annotations

import json
from typing import Any

from agentfly.models.engine import ChatCompletion, Message


def sendable(message: Message, send_reasoning: bool) -> dict[str, Any]:
    """A message as endpoints take it.

    Args:
        message: of the conversation.
        send_reasoning: keep `reasoning_content`.
    """
    sent: dict[str, Any] = dict(message)
    if not send_reasoning:
        sent.pop("reasoning_content", None)
    # Halves of surrogate pairs, which a tool's output may hold, can't be sent.
    sent["content"] = message["content"].encode("utf-8", "replace").decode()
    if calls := message.get("tool_calls"):
        sent["tool_calls"] = [_sendable_call(call) for call in calls]
    return sent


def answer_of(response: Any) -> ChatCompletion:
    """Our form of an endpoint's answer (an `openai.types.chat.ChatCompletion`).

    Raises:
        ValueError: it is none. The client takes whatever a server sends for an answer, even a page of text.
    """
    try:
        return _read(response)
    except (AttributeError, TypeError, LookupError) as error:
        raise ValueError(f"the answer is no chat completion: {str(response)[:200]!r}") from error


def _read(response: Any) -> ChatCompletion:
    choice = response.choices[0]
    said, usage = choice.message, response.usage
    message: Message = {"role": "assistant", "content": said.content or ""}
    thoughts = getattr(said, "reasoning_content", None) or getattr(said, "reasoning", None)
    if isinstance(thoughts, str):
        message["reasoning_content"] = thoughts
    calls = [call for call in said.tool_calls or [] if call.type == "function"]
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in calls
        ]
    counted = () if usage is None else ("prompt_tokens", "completion_tokens")
    return ChatCompletion(
        message, choice.finish_reason or "stop", {name: getattr(usage, name) or 0 for name in counted}
    )


def _sendable_call(call: dict[str, Any]) -> dict[str, Any]:
    """A call whose arguments are a JSON object: servers parse the history again and refuse what isn't."""
    try:
        whole = isinstance(json.loads(call["function"]["arguments"]), dict)
    except (ValueError, TypeError, RecursionError):
        whole = False
    return call if whole else {**call, "function": {**call["function"], "arguments": "{}"}}
