"""Random conversations with the formats of real families: what is trained is what was sampled, nothing drifts."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rollout.families import MARKS, family_format
from rollout.test_conversation import PlayedEngine

from agentfly.models.engine import Completion, Message, Sampling
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.conversation import TokenConversation
from agentfly.rollout.template import tool_schema

TOOLS = [tool_schema("add"), tool_schema("find")]
WORDS = ["", "a", "The sum is 3.", "naïve 中文 🙂", "\n\n  indented\n", 'say "so" \\ {x}', "</b> < >", "ab " * 150]

Formats = Callable[[str], ChatFormat]


class Policy:
    """Samples as models do: in its family's own form, in tokens of its own, cut short, or rubbish."""

    def __init__(self, format: ChatFormat, rng: random.Random) -> None:
        self.format = format
        self.rng = rng
        self.tidy = True  # all completions so far were exactly what the format would write

    def sample(self, messages: Sequence[Message], prompt: Sequence[int]) -> Completion:
        ids, reason = self._tokens(messages, prompt), "stop"
        if self.rng.random() < 0.15:
            ids, reason, self.tidy = ids[: max(1, self.rng.randrange(len(ids)))], "length", False
        finish: Any = reason
        return Completion(ids, [-self.rng.random() for _ in ids], [self.rng.randrange(5)] * len(ids), finish)

    def _tokens(self, messages: Sequence[Message], prompt: Sequence[int]) -> list[int]:
        kind = self.rng.random()
        if kind < 0.6 and (written := self._written(messages, prompt)) is not None:
            return written
        self.tidy = False
        stop = self.rng.choice(self.format.stop_token_ids)
        if kind < 0.8:
            text = self.rng.choice(WORDS)
            return [token for letter in text[:40] for token in self.format.encode(letter)] + [stop]
        top = max(prompt)
        return [self.rng.randrange(top) for _ in range(self.rng.randrange(30))] + [stop]

    def _written(self, messages: Sequence[Message], prompt: Sequence[int]) -> list[int] | None:
        """A turn as the family writes it: what its renderer adds to the prompt for this message."""
        message: dict[str, Any] = {"role": "assistant", "content": self.rng.choice(WORDS).strip()}
        if self.rng.random() < 0.4:
            message["reasoning_content"] = self.rng.choice(WORDS).strip() or "so"
        count = self.rng.choice([0, 1, 1, 2])
        message["tool_calls"] = [self._call(len(messages), index) for index in range(count)] or None
        if not message["tool_calls"]:
            del message["tool_calls"]
        renderer: Any = self.format._grammar._renderer  # type: ignore[attr-defined]
        plain = [_with_objects(each) for each in (*messages, message)]
        try:
            full = list(renderer.render_ids(plain, tools=TOOLS, add_generation_prompt=False))
        except (ValueError, KeyError, TypeError):
            return None
        if full[: len(prompt)] != list(prompt):
            return None
        written = full[len(prompt) :]
        ends = [index for index, token in enumerate(written) if token in self.format.stop_token_ids]
        # Some families end a turn by what begins the next: then there is nothing to see here.
        return written[: ends[-1] + 1] if ends else None

    def _call(self, turn: int, index: int) -> dict[str, Any]:
        arguments = {"text": self.rng.choice(WORDS)}
        function = {"name": self.rng.choice(["add", "find"]), "arguments": json.dumps(arguments, ensure_ascii=False)}
        return {"id": f"call{turn:03d}{index:02d}", "type": "function", "function": function}


def _with_objects(message: Any) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    plain = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in calls
    ]
    return {**message, "tool_calls": plain}


async def play(format: ChatFormat, seed: int) -> None:
    """One conversation; every claim is checked after every turn."""
    rng = random.Random(seed)
    policy, engine = Policy(format, rng), PlayedEngine()
    opening: list[Message] = [{"role": "user", "content": rng.choice(WORDS)}]
    if rng.random() < 0.5:
        opening.insert(0, {"role": "system", "content": rng.choice(WORDS) or "Be kind."})
    conversation = TokenConversation(engine, format, opening, TOOLS, session="s", max_context=100_000)
    sampled: list[Completion] = []
    for _ in range(rng.randint(1, 5)):
        known = list(conversation.messages)
        before = len(conversation.segments())
        prompt = conversation._next_prompt()
        full = format.render(known, TOOLS)
        completion = policy.sample(known, prompt)
        engine._completions.append(completion)
        turn = await conversation.next(Sampling())
        sampled.append(completion)
        check_stream(conversation, engine, sampled)
        grew = len(conversation.segments()) > before
        # A new segment is what the format renders; one that goes on differs from that only by what was sampled.
        if grew:
            assert prompt == full
        elif policy.tidy and before:
            assert prompt == full or any(message.get("reasoning_content") for message in known)
        conversation.add(_followers(turn, rng))


def check_stream(conversation: TokenConversation, engine: PlayedEngine, sampled: Sequence[Completion]) -> None:
    segments = conversation.segments()
    trained = [int(token) for segment in segments for token in segment.ids[segment.mask]]
    assert trained == [token for completion in sampled for token in completion.ids]
    versions = [int(version) for segment in segments for version in segment.versions[segment.mask]]
    assert versions == [version for completion in sampled for version in completion.policy_versions]
    prompts = [asked[0] for asked in engine.asked]
    streams = [segment.ids.tolist() for segment in segments]
    for prompt, completion in zip(prompts, sampled, strict=True):
        whole = [*prompt, *completion.ids]
        assert any(stream[: len(whole)] == whole for stream in streams), "it was sampled after other tokens"


def _followers(turn: Any, rng: random.Random) -> list[Message]:
    if turn.calls:
        return [
            {"role": "tool", "content": rng.choice(WORDS), "tool_call_id": call.id, "name": call.name or "add"}
            for call in turn.calls
        ]
    return [{"role": "user", "content": rng.choice(WORDS)}]


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Formats:
    made: dict[str, ChatFormat] = {}

    def load(family: str) -> ChatFormat:
        if family not in made:
            made[family] = family_format(family, tmp_path_factory.mktemp(family))
        return made[family]

    return load


@pytest.mark.parametrize("family", MARKS)
def test_random_conversations(family: str, formats: Formats) -> None:
    format = formats(family)
    format.check()

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.integers(0, 2**32))
    def conversations(seed: int) -> None:
        asyncio.run(play(format, seed))

    conversations()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "qwen3.5"])
def test_random_conversations_with_the_real_vocabulary(family: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    format = family_format(family, tmp_path_factory.mktemp("real"), real=True)
    for seed in range(40):
        asyncio.run(play(format, seed))
