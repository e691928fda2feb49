"""Calls of one session, merged into segments: what was sampled is trained once, after exactly what it saw. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentfly.models.engine import Completion, Message
from agentfly.rollout.trajectory import Segment, SegmentBuilder
from agentfly.rollout.turns import read_arguments

_Key = tuple[Any, ...]


@dataclass(eq=False)
class Known:
    """A call that was answered.

    Attributes:
        messages: its conversation, the answer included, as we gave it.
        prompt_ids, completion_ids: its exact tokens.
        extended: another call goes on from its answer already, in the same segment.
    """

    messages: list[Message]
    prompt_ids: list[int]
    completion_ids: list[int]
    builder: SegmentBuilder
    extended: bool = False


class Capture:
    """Keeps every answered call and finds the one that a new call goes on from.

    A call whose conversation begins with that of an earlier one, its answer included, extends its segment. A
    second one that does so (a retry, a branch), a sub-agent and a rewritten history begin segments of their own,
    in which all that came before is context.
    """

    def __init__(self) -> None:
        self._known: dict[_Key, Known] = {}
        self._builders: list[SegmentBuilder] = []
        self.calls = 0
        self.sampled = 0
        self.last: Known | None = None

    def find(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> tuple[Known, int] | None:
        """The longest answered call that the conversation goes on from, and how many messages it covers."""
        keys = [_key(message) for message in messages]
        named = _tools_key(tools)
        for length in range(len(messages) - 1, 0, -1):
            known = self._known.get((named, *keys[:length]))
            if known is not None:
                return known, length
        return None

    def add(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        prompt_ids: Sequence[int],
        completion: Completion,
        answer: Message,
        before: Known | None,
    ) -> None:
        """Record an answered call.

        Args:
            messages: of the call.
            prompt_ids: what was sampled after.
            completion: what was sampled.
            answer: as the caller gets it.
            before: the call that it goes on from.
        """
        sampled = [int(token) for token in completion.ids]
        builder, stands = SegmentBuilder(), 0
        if before is not None and not before.extended and _begins(prompt_ids, before.builder.ids):
            builder, stands, before.extended = before.builder, len(before.builder.ids), True
        else:
            self._builders.append(builder)
        builder.add_context(prompt_ids[stands:])
        builder.add_sampled(sampled, completion.logprobs, completion.policy_versions)
        said = [*messages, answer]
        self.last = Known(said, list(prompt_ids), sampled, builder)
        self._known[(_tools_key(tools), *map(_key, said))] = self.last
        self.calls += 1
        self.sampled += len(sampled)

    def segments(self) -> list[Segment]:
        """The tokens of all calls."""
        return [builder.build() for builder in self._builders]


def _begins(ids: Sequence[int], start: Sequence[int]) -> bool:
    return len(ids) >= len(start) and list(ids[: len(start)]) == list(start)


def _key(message: Message) -> _Key:
    """What makes two messages the same: harnesses drop thoughts, reorder JSON, and trim blanks."""
    calls = []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments, _ = read_arguments(function.get("arguments"))
        text = function.get("arguments") if arguments is None else json.dumps(arguments, sort_keys=True)
        calls.append((call.get("id"), function.get("name"), text))
    return message["role"], message["content"].strip(), tuple(calls), message.get("tool_call_id")


def _tools_key(tools: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(list(tools), sort_keys=True)
