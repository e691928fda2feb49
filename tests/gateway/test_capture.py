"""Merging calls into segments: each sampled token is trained once, after exactly what it was sampled after."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly.models.engine import Completion, Message
from agentfly.rollout.gateway.capture import Capture

TOOLS: list[Any] = [{"type": "function", "function": {"name": "add"}}]


class Harness:
    """Calls as harnesses make them: goes on, branches, starts sub-agents, rewrites its history, retries."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.capture = Capture()
        self.histories: list[list[Message]] = []
        self.sampled: list[tuple[list[int], list[int]]] = []
        self.token = 0

    def call(self) -> None:
        messages = self.history()
        found = self.capture.find(messages, TOOLS)
        if found is None or self.rng.random() < 0.2:  # a format that can't be extended here
            before, prompt = None, [self.fresh() for _ in range(self.rng.randint(1, 5))]
        else:
            before, length = found
            assert 0 < length < len(messages)
            assert before.messages[-1]["content"].strip() == messages[length - 1]["content"].strip()
            prompt = [*before.prompt_ids, *before.completion_ids, self.fresh()]
        ids = [self.fresh() for _ in range(self.rng.randint(0, 4))]
        completion = Completion(ids, [-float(token) for token in ids], [token % 3 for token in ids], "stop")
        answer: Message = {"role": "assistant", "content": f" said {self.fresh()}", "reasoning_content": "so"}
        self.capture.add(messages, TOOLS, prompt, completion, answer, before)
        self.sampled.append((prompt, ids))
        # The client gives back what it was told, without the thoughts, and perhaps trimmed.
        self.histories.append([*messages, {"role": "assistant", "content": answer["content"].strip()}])

    def history(self) -> list[Message]:
        user: Message = {"role": "user", "content": f"task {self.fresh()}"}
        kind = self.rng.random()
        if not self.histories or kind < 0.2:
            return [user]
        history = self.histories[-1] if kind < 0.7 else self.rng.choice(self.histories)
        if kind > 0.9 and len(history) > 2:
            history = history[2:]
        return [*history, user]

    def fresh(self) -> int:
        self.token += 1
        return self.token


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 25))
def test_every_sampled_token_is_trained_once_after_what_it_saw(seed: int, calls: int) -> None:
    harness = Harness(seed)
    for _ in range(calls):
        harness.call()
    segments = harness.capture.segments()
    trained = sorted(int(token) for segment in segments for token in segment.ids[segment.mask])
    assert trained == sorted(token for _, ids in harness.sampled for token in ids)
    for segment in segments:
        ids = segment.ids.tolist()
        for place in segment.mask.nonzero()[0]:
            token = ids[place]
            prompt, sampled = next(call for call in harness.sampled if token in call[1])
            assert ids[:place] == prompt + sampled[: sampled.index(token)]
            assert segment.logprobs[place] == -float(token)
            assert segment.versions[place] == token % 3
    assert harness.capture.sampled == len(trained)


def completion(*ids: int) -> Completion:
    return Completion(ids, [0.0] * len(ids), [0] * len(ids), "stop")


def test_the_second_who_goes_on_from_an_answer_begins_a_segment() -> None:
    capture = Capture()
    ask: list[Message] = [{"role": "user", "content": "a"}]
    said: Message = {"role": "assistant", "content": "b"}
    capture.add(ask, TOOLS, [1, 2], completion(3), said, None)
    for token in (5, 7):
        after: list[Message] = [*ask, said, {"role": "user", "content": str(token)}]
        found = capture.find(after, TOOLS)
        assert found is not None
        capture.add(after, TOOLS, [1, 2, 3, 4], completion(token), {"role": "assistant", "content": "c"}, found[0])
    first, second = capture.segments()
    assert (first.ids.tolist(), first.mask.tolist()) == ([1, 2, 3, 4, 5], [False, False, True, False, True])
    assert (second.ids.tolist(), second.mask.tolist()) == ([1, 2, 3, 4, 7], [False] * 4 + [True])


def test_other_tools_are_another_conversation() -> None:
    capture = Capture()
    ask: list[Message] = [{"role": "user", "content": "a"}]
    said: Message = {"role": "assistant", "content": "b"}
    capture.add(ask, TOOLS, [1], completion(2), said, None)
    assert capture.find([*ask, said, *ask], []) is None
    assert capture.find([*ask, said, *ask], TOOLS) is not None
    assert capture.find([*ask, said], TOOLS) is None
