"""The generic bridge: from one turn to the next with any chat template that only ever appends.

What a template adds after an assistant's turn is learned from a short made-up conversation that
ends in the same turn and the same new messages; what stands before in the real one is never
rendered again. `check` proves on the real template that this equals the full render.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentfly.errors import ConfigError
from agentfly.models.engine import Message
from agentfly.rollout.bridge_check import check_bridge, find_misread
from agentfly.rollout.grammar import ParsedText, Tools, before_stop, raw_call, tail_of
from agentfly.rollout.hermes import parse_calls
from agentfly.rollout.template import SYSTEM, USER, ChatTemplate, tool_schema
from agentfly.rollout.tokenizer import FolderTokenizer
from agentfly.rollout.turns import call_id

_THOUGHT, _SAID, _ARGUMENT = "qzthought", "qzsaid", "qzargument"
_Follower = Literal["tool", "user"]


class TemplateGrammar:
    """A chat template, a parser of tool calls, and the bridge between them.

    Args:
        tokenizer: encodes and decodes.
        template: of the same tokenizer.
        parser: one of `renderers.parsers`, with `extract(ids)`; None reads hermes calls from the text.
        stop_token_ids: further tokens that end a completion.
    """

    def __init__(
        self, tokenizer: FolderTokenizer, template: ChatTemplate, parser: Any | None, stop_token_ids: Sequence[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._parser = parser
        self._flaw: str | None = None
        self._misread: str | None = None
        self._close_id, self._close = -1, ""
        self._survives: dict[_Follower, bool] = {}
        stops = list(stop_token_ids)
        try:
            self._close_id, self._close = template.closing()
            stops.insert(0, self._close_id)
        except ConfigError as error:
            # Evaluation can do without a bridge, so this is held against training only.
            self._flaw = str(error)
        self._stops = tuple(dict.fromkeys(stops))

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return self._stops

    @property
    def closing(self) -> tuple[int, str]:
        """The token that ends an assistant's turn, and its text."""
        return self._close_id, self._close

    @property
    def template(self) -> ChatTemplate:
        """What renders."""
        return self._template

    def render(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        if tools:
            self.check_tools()
        return self._template.encode(self._template.text(messages, tools))

    def check(self) -> None:
        if self._flaw is not None:
            raise ConfigError(f"the chat template of {self._template.name} can't be trained on: {self._flaw}")
        check_bridge(self)
        self.check_tools()

    def check_tools(self) -> None:
        """Without this, an evaluation could silently see no call at all."""
        if self._misread is None:
            self._misread = find_misread(self)
        if self._misread:
            raise ConfigError(f"the chat template of {self._template.name}: {self._misread}")

    def parse(self, completion_ids: Sequence[int], tools: Tools, prompt_ids: Sequence[int]) -> ParsedText:
        ids = before_stop(completion_ids, self._stops)
        text = self._decode(ids)
        opened = self._decode(prompt_ids[-8:]).rstrip().endswith("<think>")
        reasoning: str | None = None
        if opened or text.lstrip().startswith("<think>"):
            reasoning, closed, text = text.partition("</think>")
            reasoning = reasoning.replace("<think>", "", 1).strip() if not opened else reasoning.strip()
            if not closed:
                return ParsedText("", reasoning=reasoning, reasoning_open=True)
            ids = ids[self._end_of("</think>", ids) :]
            text = text.lstrip("\n")
        if self._parser is None:
            content, tail, calls = parse_calls(text)
            return ParsedText(content, tail, reasoning, calls=calls)
        content_ids, found = self._parser.extract(ids)
        if not found:
            return ParsedText(text, reasoning=reasoning)
        content = self._decode(content_ids)
        return ParsedText(
            content.lstrip("\n") if reasoning is not None else content,
            tail_of(found, self._tokenizer, ids),
            reasoning,
            calls=[raw_call(call, self._tokenizer, ids) for call in found],
        )

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        new_messages: Sequence[Message],
        tools: Tools,
        history: Sequence[Message],
    ) -> list[int] | None:
        if self._flaw is not None or not history or history[-1]["role"] != "assistant":
            return None
        if any(message["role"] == "assistant" for message in new_messages):
            return None
        closed = bool(completion_ids) and completion_ids[-1] == self._close_id
        body = completion_ids[:-1] if closed else completion_ids
        if any(token in self._stops for token in body) or not self._keeps_thoughts(history, new_messages):
            return None
        try:
            added = self._added(body, prompt_ids, history, new_messages, tools)
        except ConfigError:
            return None
        if added is None:
            return None
        missing, extension = added
        # Encoded with the closing token in front, as within the full text: some tokenizers treat a text's head apart.
        ids = self._template.encode(self._close + extension)
        if not ids or ids[0] != self._close_id:
            return None
        end = [] if closed else [*self._template.encode(missing), self._close_id]
        return [*prompt_ids, *completion_ids, *end, *ids[1:]]

    def _added(
        self,
        body: Sequence[int],
        prompt_ids: Sequence[int],
        history: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Tools,
    ) -> tuple[str, str] | None:
        """What a cut turn lacks before its closing token, and what follows that token."""
        turn = history[-1]
        structured = turn.get("reasoning_content") or (turn.get("tool_calls") and self._template.traits.calls)
        text = self._decode(body)
        stand_in = _stand_in(turn) if structured else {"role": "assistant", "content": text}
        opening = [SYSTEM, USER] if history[0]["role"] == "system" else [USER]
        head = self._template.text(opening, tools)
        full = self._template.text([*opening, stand_in, *new_messages], tools)
        if not full.startswith(head):
            return None
        if not structured:
            sampled = head + text + self._close
            return ("", full[len(sampled) :]) if full.startswith(sampled) else None
        positions = _positions(full, len(head), stand_in)
        end = full.find(self._close, positions[-1]) if positions else -1
        if end < 0:
            return None
        open_thought = turn.get("reasoning_content") and self.parse(body, tools, prompt_ids).reasoning_open
        return full[positions[0] : end] if open_thought else "", full[end + len(self._close) :]

    def _keeps_thoughts(self, history: Sequence[Message], new_messages: Sequence[Message]) -> bool:
        """Whether the template goes on showing the thoughts in the history when the new messages come."""
        if not any(message.get("reasoning_content") for message in history):
            return True
        follower: _Follower = "tool" if all(message["role"] == "tool" for message in new_messages) else "user"
        if follower not in self._survives:
            self._survives[follower] = self._thoughts_survive(follower)
        return self._survives[follower]

    def _thoughts_survive(self, follower: _Follower) -> bool:
        answer = {"role": "tool", "content": "a", "name": "probe", "tool_call_id": call_id(0, 0)}
        call = {"id": call_id(0, 0), "type": "function", "function": {"name": "probe", "arguments": "{}"}}
        first = {"role": "assistant", "content": "", "reasoning_content": f"{_THOUGHT}1", "tool_calls": [call]}
        last = {**first, "reasoning_content": f"{_THOUGHT}2"}
        if follower == "user":
            last = {"role": "assistant", "content": _SAID, "reasoning_content": f"{_THOUGHT}2"}
        messages = [USER, first, answer, last, answer if follower == "tool" else USER]
        try:
            text = self._template.text(messages, [tool_schema("probe")])
        except ConfigError:
            return False
        return f"{_THOUGHT}1" in text and f"{_THOUGHT}2" in text

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids))

    def _end_of(self, marker: str, ids: Sequence[int]) -> int:
        """Number of tokens up to the one that completes the marker's first occurrence."""
        low, high = 1, len(ids)
        while low < high:
            middle = (low + high) // 2
            if marker in self._decode(ids[:middle]):
                high = middle
            else:
                low = middle + 1
        return low


def _stand_in(turn: Mapping[str, Any]) -> dict[str, Any]:
    """The turn with made-up words in place of its own, which could imitate the template's marks."""
    stand_in: dict[str, Any] = {"role": "assistant", "content": _SAID if turn["content"] else ""}
    if turn.get("reasoning_content"):
        stand_in["reasoning_content"] = _THOUGHT
    if calls := turn.get("tool_calls"):
        stand_in["tool_calls"] = [
            {**call, "function": {"name": call["function"]["name"], "arguments": {"text": _ARGUMENT}}} for call in calls
        ]
    return stand_in


def _positions(text: str, start: int, stand_in: Mapping[str, Any]) -> list[int]:
    """Where each made-up word of the turn ends, in order; empty when one is missing."""
    words = [_THOUGHT] if "reasoning_content" in stand_in else []
    words += [_SAID] if stand_in["content"] else []
    words += [_ARGUMENT] * len(stand_in.get("tool_calls", ()))
    ends: list[int] = []
    for word in words:
        found = text.find(word, start)
        if found < 0:
            return []
        start = found + len(word)
        ends.append(start)
    return ends
