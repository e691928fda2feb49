"""Conversations: what is trained is what was sampled, and the rest of the stream is the template's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout.tiny_tokenizer import CHATML, DROPS_THOUGHTS, GEMMA, NO_END, STRICT_TOOLS, build_folder

from agentfly.errors import ModelError
from agentfly.models.engine import ChatCompletion, Completion, EngineInfo, Message, Piece, Sampling, piece_of
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.conversation import ChatConversation, TokenConversation
from agentfly.rollout.template import tool_schema

TOOLS = [tool_schema("add"), tool_schema("find")]
OPENING: list[Message] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
TEMPLATES: Mapping[str, str | None] = {
    "qwen": None,
    "chatml": CHATML,
    "gemma": GEMMA,
    "strict": STRICT_TOOLS,
    "thoughts": DROPS_THOUGHTS,
    "no end": NO_END,
}


class PlayedEngine:
    """Gives prepared completions and keeps what it was asked."""

    def __init__(self, *completions: Completion | Exception) -> None:
        self._completions = list(completions)
        self.asked: list[tuple[list[int], Sampling, str]] = []

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> Completion:
        self.asked.append((list(prompt_ids), sampling, session))
        completion = self._completions.pop(0)
        if isinstance(completion, Exception):
            raise completion
        return completion

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> AsyncIterator[Piece]:
        yield piece_of(await self.generate(prompt_ids, sampling, session=session, priority=priority))

    async def abort(self, session: str) -> None:
        pass

    async def pause(self) -> None:
        pass

    async def resume(self) -> None:
        pass

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        pass

    async def info(self) -> EngineInfo:
        return EngineInfo(1000)

    async def stats(self) -> dict[str, float]:
        return {}


def sampled(ids: Sequence[int], finish: str = "stop", version: int = 0) -> Completion:
    """A completion with recognisable logprobs."""
    reason: Any = finish
    return Completion(list(ids), [-0.001 * token for token in ids], [version] * len(ids), reason)


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ChatFormat]:
    folders = {name: build_folder(tmp_path_factory.mktemp("tokenizer"), text) for name, text in TEMPLATES.items()}
    loaded = {name: ChatFormat.load(folder) for name, folder in folders.items()}
    return {**loaded, "family": ChatFormat.load(folders["qwen"], family="qwen3")}


@pytest.fixture
def format(formats: dict[str, ChatFormat]) -> ChatFormat:
    return formats["qwen"]


def talk(engine: PlayedEngine, format: ChatFormat, max_context: int = 2000) -> TokenConversation:
    return TokenConversation(engine, format, OPENING, TOOLS, session="s", max_context=max_context)


CALL = '<tool_call>\n{"name": "add", "arguments": {"text": "1"}}\n</tool_call><|im_end|>'


async def test_two_turns_are_one_segment_of_exact_tokens(format: ChatFormat) -> None:
    first, last = format.encode(CALL), format.encode("Two.<|im_end|>")
    engine = PlayedEngine(sampled(first, version=3), sampled(last, version=4))
    conversation = talk(engine, format)
    turn = await conversation.next(Sampling())
    conversation.add([{"role": "tool", "content": "2", "tool_call_id": turn.calls[0].id}])
    await conversation.next(Sampling())
    (segment,) = conversation.segments()
    assert segment.ids.tolist() == engine.asked[1][0] + last
    assert segment.ids[segment.mask].tolist() == first + last
    assert segment.versions[segment.mask].tolist() == [3] * len(first) + [4] * len(last)
    assert np.array_equal(
        segment.logprobs[segment.mask], np.array([-0.001 * token for token in first + last], np.float32)
    )
    assert format.decode(segment.ids.tolist()) == (
        format.decode(format.render(OPENING, TOOLS))
        + CALL
        + "\n<|im_start|>user\n<tool_response>\n2\n</tool_response><|im_end|>\n<|im_start|>assistant\nTwo.<|im_end|>"
    )
    assert [message["role"] for message in conversation.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_limits_stop_tokens_seed_and_session_reach_the_engine(format: ChatFormat) -> None:
    opening = len(format.render(OPENING, TOOLS))
    engine = PlayedEngine(sampled(format.encode("a")), sampled([]))
    conversation = talk(engine, format, max_context=opening + 40)
    assert (conversation.prompt_length, conversation.max_context) == (opening, opening + 40)
    await conversation.next(Sampling(max_tokens=500, stop_token_ids=(7,), seed=11, temperature=0.5))
    _, sampling, session = engine.asked[0]
    assert sampling == Sampling(max_tokens=40, stop_token_ids=(7, 2), seed=11, temperature=0.5)
    assert session == "s"
    conversation.add([{"role": "user", "content": "b"}])
    await conversation.next(Sampling(max_tokens=3))
    assert engine.asked[1][1].max_tokens == 3


async def test_the_length_of_the_next_prompt_is_known_before_it_is_sent(format: ChatFormat) -> None:
    engine = PlayedEngine(sampled(format.encode("a b<|im_end|>")), sampled([2]))
    conversation = talk(engine, format)
    await conversation.next(Sampling())
    assert conversation.prompt_length == len(conversation.segments()[0])
    conversation.add([{"role": "user", "content": "b"}])
    one = conversation.prompt_length
    conversation.add([{"role": "user", "content": "c"}])
    assert conversation.prompt_length > one
    expected = conversation.prompt_length
    await conversation.next(Sampling())
    assert len(engine.asked[1][0]) == expected


async def test_a_prompt_that_fills_the_context_is_never_sent(format: ChatFormat) -> None:
    engine = PlayedEngine()
    conversation = talk(engine, format, max_context=len(format.render(OPENING, TOOLS)))
    assert conversation.prompt_length >= conversation.max_context
    with pytest.raises(ValueError, match="no room"):
        await conversation.next(Sampling())
    assert engine.asked == []
    assert conversation.segments() == []


async def test_a_turn_needs_something_new_before_it(format: ChatFormat) -> None:
    conversation = talk(PlayedEngine(sampled([2])), format)
    await conversation.next(Sampling())
    with pytest.raises(ValueError, match="nothing was added"):
        await conversation.next(Sampling())


@pytest.mark.parametrize(
    ("completion", "message"),
    [
        (Completion([5], [0.0], [0], "abort"), "aborted"),
        (Completion([5, 6], [0.0], [0, 0], "stop"), "2 tokens, 1 logprobs and 2 policy versions"),
        (ModelError("out of memory"), "out of memory"),
    ],
)
async def test_a_failed_engine_leaves_the_conversation_as_it_was(
    format: ChatFormat, completion: Completion | Exception, message: str
) -> None:
    engine = PlayedEngine(completion, sampled(format.encode("a<|im_end|>")))
    conversation = talk(engine, format)
    with pytest.raises(ModelError, match=message):
        await conversation.next(Sampling())
    assert conversation.messages == OPENING
    assert conversation.segments() == []
    await conversation.next(Sampling())
    assert engine.asked[0][0] == engine.asked[1][0]


async def test_an_empty_completion_is_a_turn_like_any_other(format: ChatFormat) -> None:
    engine = PlayedEngine(sampled([], "length"), sampled(format.encode("a<|im_end|>")))
    conversation = talk(engine, format)
    turn = await conversation.next(Sampling())
    assert turn.message == {"role": "assistant", "content": ""}
    assert turn.truncated
    conversation.add([{"role": "user", "content": "go on"}])
    await conversation.next(Sampling())
    assert len(conversation.segments()) == 1
    assert format.decode(engine.asked[1][0]) == format.decode(format.render(conversation.messages[:-1], TOOLS))


async def test_a_truncated_turn_is_closed_by_tokens_that_are_not_trained(format: ChatFormat) -> None:
    cut = format.encode("I was about to")
    engine = PlayedEngine(sampled(cut, "length"), sampled([2]))
    conversation = talk(engine, format)
    turn = await conversation.next(Sampling())
    assert turn.truncated
    assert turn.finish_reason == "length"
    conversation.add([{"role": "user", "content": "yes?"}])
    await conversation.next(Sampling())
    (segment,) = conversation.segments()
    assert segment.ids[segment.mask].tolist() == [*cut, 2]
    start = len(engine.asked[0][0]) + len(cut)
    assert segment.ids[start] == 2
    assert not segment.mask[start]


async def test_what_can_not_be_extended_starts_a_new_segment(formats: dict[str, ChatFormat]) -> None:
    format = formats["family"]
    first, second = format.encode("<think>\nhm\n</think>\n\nhi<|im_end|>"), format.encode("bye<|im_end|>")
    engine = PlayedEngine(sampled(first), sampled(second))
    conversation = talk(engine, format)
    await conversation.next(Sampling())
    conversation.add([{"role": "user", "content": "and?"}])
    await conversation.next(Sampling())
    old, new = conversation.segments()
    assert old.ids[old.mask].tolist() == first
    assert new.ids[new.mask].tolist() == second
    assert new.ids.tolist() == format.render(conversation.messages[:-1], TOOLS) + second
    assert "hm" not in format.decode(new.ids.tolist())


@pytest.mark.parametrize("name", [*TEMPLATES, "family"])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), turns=st.integers(1, 5))
def test_trained_tokens_are_sampled_tokens(formats: dict[str, ChatFormat], name: str, seed: int, turns: int) -> None:
    """Whatever is sampled and observed: each sampled token is trained once, and no other token is."""
    format, draw = formats[name], random.Random(seed)
    texts = [
        CALL,
        CALL.replace("1", "ü") + "",
        "plain words<|im_end|>",
        "<think>\nhm\n</think>\n\n" + CALL,
        " blanks \n<|im_end|>",
    ]
    choices = [format.encode(text) for text in texts]
    choices += [[draw.randrange(300) for _ in range(draw.randrange(30))] for _ in range(5)]
    completions = []
    for turn in range(turns):
        ids = draw.choice(choices)
        stop = next((index + 1 for index, token in enumerate(ids) if token in format.stop_token_ids), len(ids))
        cut = draw.randrange(stop + 1) if draw.random() < 0.3 else stop
        ended = bool(cut) and ids[cut - 1] in format.stop_token_ids
        completions.append(sampled(ids[:cut], "stop" if ended else "length", version=turn))
    engine = PlayedEngine(*completions)
    conversation = talk(engine, format)

    async def play() -> None:
        for _ in range(turns):
            turn = await conversation.next(Sampling())
            answers: list[Message] = [
                {"role": "tool", "content": draw.choice(["4", "", " ü🙂\n", "two\nlines"]), "tool_call_id": call.id}
                for call in turn.calls
            ]
            conversation.add(answers or [{"role": "user", "content": "go on"}])

    asyncio.run(play())
    segments = conversation.segments()
    trained = [token for segment in segments for token in segment.ids[segment.mask].tolist()]
    assert trained == [token for completion in completions for token in completion.ids]
    versions = [version for segment in segments for version in segment.versions[segment.mask].tolist()]
    assert versions == [version for completion in completions for version in completion.policy_versions]
    for segment in segments:
        assert not segment.logprobs[~segment.mask].any()
        assert (segment.versions[~segment.mask] == -1).all()
    # Each prompt that the engine saw is what the segments hold at that place.
    whole = [segment.ids.tolist() for segment in segments]
    for (prompt, _, _), completion in zip(engine.asked, completions, strict=True):
        assert any(ids[: len(prompt) + len(completion.ids)] == [*prompt, *completion.ids] for ids in whole)


class PlayedChat:
    """A chat engine with prepared answers."""

    def __init__(self, *answers: ChatCompletion) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[list[Message], Sampling, str]] = []

    async def chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Sampling, *, session: str = ""
    ) -> ChatCompletion:
        self.asked.append((list(messages), sampling, session))
        return self._answers.pop(0)


def openai_call(id: str | None, name: str, arguments: str) -> dict[str, Any]:
    call: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return call if id is None else {"id": id, **call}


async def test_a_chat_engine_gives_messages_and_no_tokens() -> None:
    calls = [openai_call("x1", "add", '{"a": 1}'), openai_call(None, "add", '{"a": '), openai_call("x3", "find", "")]
    said: Message = {"role": "assistant", "content": "see", "tool_calls": calls}
    bye: Message = {"role": "assistant", "content": "bye"}
    engine = PlayedChat(ChatCompletion(said, "tool_calls", {"completion_tokens": 9}), ChatCompletion(bye, "length"))
    conversation = ChatConversation(engine, OPENING, TOOLS, session="s")
    turn = await conversation.next(Sampling(seed=1))
    assert [(call.id, call.name, call.arguments) for call in turn.calls] == [
        ("x1", "add", {"a": 1}),
        ("call00001", "add", None),
        ("x3", "find", {}),
    ]
    assert "not valid JSON" in (turn.calls[1].error or "")
    assert [call["id"] for call in turn.message["tool_calls"]] == ["x1", "call00001", "x3"]
    assert (turn.completion_tokens, turn.truncated, turn.finish_reason) == (9, False, "tool_calls")
    conversation.add([{"role": "tool", "content": "2", "tool_call_id": call.id} for call in turn.calls])
    last = await conversation.next(Sampling())
    assert last.truncated
    assert last.calls == []
    assert engine.asked[1][0] == conversation.messages[:-1]
    assert len(engine.asked[1][0]) == 6
    assert (conversation.segments(), conversation.prompt_length, conversation.max_context) == ([], 0, None)


async def test_what_follows_a_stop_text_is_trained_and_not_shown(format: ChatFormat) -> None:
    first, last = format.encode("One. STOP."), format.encode("Two.<|im_end|>")
    ended = Completion(first, [-0.5] * len(first), [0] * len(first), "stop", stop="STOP")
    engine = PlayedEngine(ended, sampled(last))
    conversation = talk(engine, format)
    turn = await conversation.next(Sampling(stop=("STOP",)))
    assert (turn.message["content"], turn.finish_reason, turn.truncated) == ("One. ", "stop", False)
    assert turn.completion_tokens == len(first)
    assert engine.asked[0][1].stop == ("STOP",)
    conversation.add([{"role": "user", "content": "go on"}])
    await conversation.next(Sampling())
    (segment,) = conversation.segments()
    assert segment.ids[segment.mask].tolist() == first + last
    assert conversation.drift() is True


async def test_drift_is_seen_where_the_model_tokenises_in_its_own_way(format: ChatFormat) -> None:
    whole = format.encode("The sum.<|im_end|>")
    letters = [token for letter in "The sum." for token in format.encode(letter)] + whole[-1:]
    assert letters != whole
    for first, drifts in ((whole, False), (letters, True)):
        conversation = talk(PlayedEngine(sampled(first), sampled(whole)), format)
        await conversation.next(Sampling())
        assert conversation.drift() is None
        conversation.add([{"role": "user", "content": "And?"}])
        await conversation.next(Sampling())
        assert conversation.drift() is drifts
