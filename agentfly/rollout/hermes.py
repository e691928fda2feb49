"""Tool use for chat templates that have none of it, in the style of the Hermes models.

Schemas stand in the system message, a call is JSON between `<tool_call>` tags in the assistant's
text, an answer is text between `<tool_response>` tags in a user message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentfly.rollout.turns import RawCall, json_problem, with_plain_arguments

_CALL = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)

_PREAMBLE = """\
# Tools

You may call one or more functions to help with the user's request. These are their signatures:
<tools>
{schemas}
</tools>

For each call write a JSON object with the function's name and its arguments between tool_call tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


@dataclass(frozen=True)
class Traits:
    """What a chat template can express by itself.

    Attributes:
        system: a system message.
        calls: the schemas of tools, and an assistant's tool calls; `text_arguments` with their arguments
            as JSON text rather than as an object.
        tool_role: messages of tools; `orphans` without a call that they answer too.
        reasoning: an assistant's `reasoning_content`.
    """

    system: bool
    calls: bool
    text_arguments: bool
    tool_role: bool
    orphans: bool
    reasoning: bool


def adapt(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], traits: Traits
) -> tuple[list[dict[str, Any]], list[Mapping[str, Any]]]:
    """Rewrite a conversation so that a template of these traits can express it.

    Returns:
        The messages and the tools to give to the template.
    """
    adapted = _answers(messages, traits)
    adapted = [_assistant(message, traits) if message["role"] == "assistant" else message for message in adapted]
    if tools and not traits.calls:
        adapted = _add_system(adapted, preamble(tools))
        tools = ()
    if not traits.system and adapted and adapted[0]["role"] == "system":
        adapted = _fold_system(adapted)
    return adapted, list(tools)


def preamble(tools: Sequence[Mapping[str, Any]]) -> str:
    """What the system message says of the tools."""
    return _PREAMBLE.format(schemas="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))


def parse_calls(text: str) -> tuple[str, str, list[RawCall]]:
    """Calls between `<tool_call>` tags of a text.

    Returns:
        The text before the first call, the text from there on, and the calls.
    """
    matches = list(_CALL.finditer(text))
    start = matches[0].start() if matches else len(text)
    return text[:start], text[start:], [_read(match) for match in matches]


def _read(match: re.Match[str]) -> RawCall:
    body = match[1].strip()
    if not match[2]:
        problem = "the call has no end: it was cut off, or its closing tag is missing"
        return RawCall(body, match[0], problem=problem)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        return RawCall(body, match[0], problem=f"the call is not valid JSON: {json_problem(error)}")
    if not isinstance(value, dict):
        return RawCall(body, match[0])
    return RawCall(body, match[0], value.get("name"), value.get("arguments", {}))


def _answers(messages: Sequence[Mapping[str, Any]], traits: Traits) -> list[dict[str, Any]]:
    """Turn the tool messages that the template can't show into user messages, joined where they meet others."""
    result: list[dict[str, Any]] = []
    known: set[str] = set()
    last_converted = False
    for message in messages:
        if message["role"] == "assistant":
            known = {call["id"] for call in message.get("tool_calls", ()) if "id" in call}
        orphan = message["role"] == "tool" and message.get("tool_call_id") not in known
        converted = message["role"] == "tool" and (not traits.tool_role or (orphan and not traits.orphans))
        if converted:
            message = {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
        if result and message["role"] == result[-1]["role"] == "user" and (converted or last_converted):
            result[-1] = {**result[-1], "content": f"{result[-1]['content']}\n{message['content']}"}
        else:
            result.append(dict(message))
        last_converted = converted
    return result


def _assistant(message: dict[str, Any], traits: Traits) -> dict[str, Any]:
    if traits.calls:
        message = message if traits.text_arguments else with_plain_arguments(message)
    elif calls := message.pop("tool_calls", None):
        blocks = [_call_text(call["function"]) for call in calls]
        message["content"] = "\n".join(filter(None, [message["content"], *blocks]))
    if not traits.reasoning and (reasoning := message.pop("reasoning_content", None)):
        message["content"] = f"<think>\n{reasoning}\n</think>\n\n{message['content']}"
    return message


def _call_text(function: Mapping[str, Any]) -> str:
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {text}}}\n</tool_call>'


def _add_system(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    if messages and messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _fold_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the system message's text at the head of the first user message."""
    system, *rest = messages
    if rest and rest[0]["role"] == "user":
        return [{**rest[0], "content": f"{system['content']}\n\n{rest[0]['content']}"}, *rest[1:]]
    return [{"role": "user", "content": system["content"]}, *rest]
