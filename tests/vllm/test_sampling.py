"""Tokens in, tokens out: what the real vLLM draws, and when it ends."""

from __future__ import annotations

import asyncio
import math

import pytest
from assets import CONTEXT, difference, logprobs, plain
from transformers import AutoTokenizer

from agentfly.errors import ModelError
from agentfly.models.engine import Sampling
from agentfly.models.vllm.engine import VllmEngine

PROMPT = [(i * 7) % 300 + 9 for i in range(70)]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
async def test_logprobs_are_those_of_the_model(engine: VllmEngine, tied: str, temperature: float) -> None:
    completion = await engine.generate(PROMPT, Sampling(max_tokens=40, temperature=temperature))
    assert len(completion.ids) == len(completion.logprobs) == len(completion.policy_versions) == 40
    assert completion.finish_reason == "length"
    expected = logprobs(tied, PROMPT, completion.ids, temperature=temperature)
    assert difference(completion.logprobs, expected) < 1e-4


async def test_logprobs_are_of_the_truncated_distribution(engine: VllmEngine, tied: str) -> None:
    completion = await engine.generate(PROMPT, Sampling(max_tokens=30, top_k=2))
    whole = logprobs(tied, PROMPT, completion.ids)
    assert all(drawn > plain for drawn, plain in zip(completion.logprobs, whole, strict=True))
    assert min(completion.logprobs) < -0.01  # there was a choice
    one = await engine.generate(PROMPT, Sampling(max_tokens=10, top_k=1))
    assert one.logprobs == pytest.approx([0.0] * 10, abs=1e-6)


async def test_greedy_takes_the_most_likely(engine: VllmEngine, tied: str) -> None:
    completion = await engine.generate(PROMPT, Sampling(max_tokens=10, temperature=0.0))
    assert list(completion.logprobs) == [0.0] * 10
    import torch

    with torch.inference_mode():
        logits = plain(tied)(input_ids=torch.tensor([[*PROMPT, *completion.ids]])).logits[0, len(PROMPT) - 1 : -1]
    assert logits.argmax(-1).tolist() == list(completion.ids)


async def test_a_seed_reproduces_a_completion_in_any_company(engine: VllmEngine) -> None:
    seeded = Sampling(max_tokens=30, seed=7)
    alone = await engine.generate(PROMPT, seeded)
    crowd = [engine.generate([5 + i, *PROMPT[:i]], Sampling(max_tokens=20 + i)) for i in range(12)]
    again, *_ = await asyncio.gather(engine.generate(PROMPT, seeded), *crowd)
    other = await engine.generate(PROMPT, Sampling(max_tokens=30, seed=8))
    assert list(again.ids) == list(alone.ids)
    assert list(other.ids) != list(alone.ids)


async def test_it_stops_with_a_stop_token_and_by_nothing_else(engine: VllmEngine, tied: str) -> None:
    sampling = Sampling(max_tokens=60, seed=3)
    free = await engine.generate(PROMPT, sampling)
    stop = free.ids[20]
    first = list(free.ids).index(stop)
    stopped = await engine.generate(PROMPT, Sampling(max_tokens=60, seed=3, stop_token_ids=(stop,)))
    assert list(stopped.ids) == list(free.ids[: first + 1])
    assert (stopped.finish_reason, stopped.stop) == ("stop", None)
    end = AutoTokenizer.from_pretrained(tied).eos_token_id
    calls = [engine.generate(PROMPT, Sampling(max_tokens=400, seed=seed)) for seed in range(8)]
    ended = await asyncio.gather(*calls)
    assert any(end in completion.ids[:-1] for completion in ended)  # the model's own end isn't the call's


async def test_it_stops_with_a_stop_text_and_keeps_its_tokens(engine: VllmEngine, tied: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tied)
    free = await engine.generate(PROMPT, Sampling(max_tokens=60, seed=4))
    text = tokenizer.decode(free.ids, skip_special_tokens=False)
    stop = next(text[i : i + 3] for i in range(20, len(text)) if text[i : i + 3].isascii())
    stopped = await engine.generate(PROMPT, Sampling(max_tokens=60, seed=4, stop=("never seen", stop)))
    assert (stopped.finish_reason, stopped.stop) == ("stop", stop)
    assert list(stopped.ids) == list(free.ids[: len(stopped.ids)])
    assert stop in tokenizer.decode(stopped.ids, skip_special_tokens=False)
    assert stop not in tokenizer.decode(stopped.ids[:-1], skip_special_tokens=False)
    assert len(stopped.logprobs) == len(stopped.policy_versions) == len(stopped.ids)


async def test_the_context_ends_it(engine: VllmEngine) -> None:
    prompt = [9 + i % 200 for i in range(CONTEXT - 5)]
    completion = await engine.generate(prompt, Sampling(max_tokens=50))
    assert (len(completion.ids), completion.finish_reason) == (5, "length")


@pytest.mark.parametrize(
    ("prompt", "sampling", "complaint"),
    [
        ([], Sampling(), "the prompt is empty"),
        ([5] * CONTEXT, Sampling(), "no room for a completion"),
        ([5, 100_000], Sampling(), "prompt token 100000 at position 1 is outside the vocabulary"),
        ([5], Sampling(max_tokens=0), "max_tokens"),
        ([5], Sampling(top_p=2.0), "top_p"),
        ([5], Sampling(stop=("",)), "empty text"),
    ],
)
async def test_bad_calls_are_refused(engine: VllmEngine, prompt: list[int], sampling: Sampling, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        await engine.generate(prompt, sampling)
    assert (await engine.stats())["running"] == 0.0


async def test_a_stream_tells_the_same_as_a_call(engine: VllmEngine) -> None:
    sampling = Sampling(max_tokens=30, seed=11)
    whole = await engine.generate(PROMPT, sampling)
    pieces = [piece async for piece in engine.stream(PROMPT, sampling)]
    assert [token for piece in pieces for token in piece.ids] == list(whole.ids)
    told = [logprob for piece in pieces for logprob in piece.logprobs]
    assert difference(told, list(whole.logprobs)) < 1e-5
    assert [version for piece in pieces for version in piece.policy_versions] == list(whole.policy_versions)
    assert len(pieces) > 3
    assert [piece.finish_reason for piece in pieces[-2:]] == [None, "length"]


async def test_the_next_turn_meets_its_cache(engine: VllmEngine) -> None:
    prompt = [(i * 11) % 300 + 9 for i in range(320)]
    before = await engine.stats()
    first = await engine.generate(prompt, Sampling(max_tokens=32), session="rollout")
    await engine.generate([*prompt, *first.ids, 40, 41], Sampling(max_tokens=4), session="rollout")
    after = await engine.stats()
    assert after["prompt_tokens"] - before["prompt_tokens"] == 2 * 320 + 34
    assert after["cached_tokens"] - before["cached_tokens"] >= 320
    assert after["generated_tokens"] - before["generated_tokens"] == 36
    assert math.isclose(after["calls"] - before["calls"], 2)
