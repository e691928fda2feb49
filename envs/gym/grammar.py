"""Actions as turns of an assistant: text with tool calls in it, or a call that is structured already."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from agentfly.agent import Agent
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.hermes import parse_calls
from agentfly.rollout.turns import AssistantTurn, RawCall, assistant_message, call_id, read_call

# Text of an action, number of the turn -> what was said.
ActionGrammar = Callable[[str, int], AssistantTurn]


def hermes_turn(text: str, turn: int) -> AssistantTurn:
    """Text in the form of the Hermes models, and of Qwen's: calls are JSON between `<tool_call>` tags."""
    content, tail, raw = parse_calls(text)
    calls = [read_call(call, call_id(turn, index)) for index, call in enumerate(raw)]
    if raw and all(call.error is not None for call in calls):
        content += tail
    return AssistantTurn(assistant_message(content.strip(), None, raw, calls), calls, "stop", False)


def grammar_of(format: ChatFormat, agent: Agent) -> ActionGrammar:
    """Text as a model of some chat format writes it.

    Args:
        format: of the model.
        agent: whose tools are called.
    """
    tools = [tool.spec for tool in agent.tools]

    def read(text: str, turn: int) -> AssistantTurn:
        said = format.parse([*format.encode(text), *format.stop_token_ids[:1]], tools, [], turn=turn)
        return AssistantTurn(said.message, said.calls, "stop", False, said.completion_tokens)

    return read


def call_turn(name: str, arguments: Mapping[str, Any], turn: int) -> AssistantTurn:
    """One call that needs no parsing."""
    text = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
    raw = [RawCall(text, text, name, dict(arguments))]
    calls = [read_call(raw[0], call_id(turn, 0))]
    return AssistantTurn(assistant_message("", None, raw, calls), calls, "stop", False)
