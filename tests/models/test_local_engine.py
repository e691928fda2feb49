"""The engine as its callers see it: coroutines, cancellation, pausing, failures, one-line errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agentfly.errors import ConfigError, ModelError
from agentfly.models.engine import Completion, Sampling
from agentfly.models.local.engine import LocalEngine

Folder = Callable[[str], str]
Plain = Callable[..., torch.Tensor]
FOREVER = Sampling(max_tokens=200, seed=0)


@pytest.fixture
async def engine(model_folder: Folder) -> AsyncIterator[LocalEngine]:
    running = LocalEngine(model_folder("qwen3"), threads=1)
    await running.start()
    yield running
    await running.stop()


async def until(condition: Callable[[dict[str, float]], bool], engine: LocalEngine) -> dict[str, float]:
    """The engine's statistics, once they are so; each question is answered between two steps."""
    while not condition(stats := await engine.stats()):
        pass
    return stats


async def test_many_calls_together_are_exact(engine: LocalEngine, model_folder: Folder, plain_logprobs: Plain) -> None:
    prompts = [[(7 * i + j) % 97 for j in range(1 + i % 20)] for i in range(40)]
    calls = [engine.generate(prompt, Sampling(max_tokens=9, seed=i)) for i, prompt in enumerate(prompts)]
    for prompt, completion in zip(prompts, await asyncio.gather(*calls), strict=True):
        expected = plain_logprobs(model_folder("qwen3"), prompt, completion)
        np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=1e-5)
    stats = await engine.stats()
    assert stats["generated_tokens"] == 40 * 9
    assert stats["prompt_tokens"] == sum(map(len, prompts))
    assert stats["running"] == stats["waiting"] == 0


async def test_no_seed_draws_one(engine: LocalEngine) -> None:
    drawn = await asyncio.gather(*(engine.generate([1, 2], Sampling(max_tokens=12)) for _ in range(4)))
    assert len({tuple(completion.ids) for completion in drawn}) == 4


@pytest.mark.parametrize(
    ("prompt", "changes", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([1, 97], {}, "token 97 at position 1 is outside the vocabulary of 97"),
        ([-1], {}, "token -1 at position 0"),
        ([1] * 256, {}, "256 tokens, the context takes 256"),
        ([1], {"max_tokens": 0}, "max_tokens is 0"),
        ([1], {"temperature": -0.1}, "temperature is -0.1"),
        ([1], {"temperature": float("nan")}, "temperature is nan"),
        ([1], {"top_p": 0.0}, "top_p is 0.0"),
        ([1], {"top_k": -2}, "top_k is -2"),
        ([1], {"min_p": 1.5}, "min_p is 1.5"),
    ],
)
async def test_a_wrong_call_is_told_in_one_line(
    engine: LocalEngine, prompt: list[int], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        await engine.generate(prompt, replace(Sampling(), **changes))
    assert "\n" not in str(caught.value)


async def test_a_cancelled_call_frees_its_row(engine: LocalEngine) -> None:
    call = asyncio.ensure_future(engine.generate([1, 2, 3], FOREVER))
    await until(lambda stats: stats["running"] == 1, engine)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await engine.stats())["running"] == 0
    assert len((await engine.generate([1, 2, 3], Sampling(max_tokens=3))).ids) == 3


async def test_abort_ends_a_sessions_calls_and_no_others(engine: LocalEngine) -> None:
    first = asyncio.ensure_future(engine.generate([1, 2, 3], FOREVER, session="a"))
    other = asyncio.ensure_future(engine.generate([1, 2, 3], Sampling(max_tokens=40), session="b"))
    await until(lambda stats: stats["generated_tokens"] >= 4, engine)
    await engine.abort("a")
    completion = await first
    assert completion.finish_reason == "abort"
    assert 1 <= len(completion.ids) < 200
    assert len(completion.ids) == len(completion.logprobs) == len(completion.policy_versions)
    assert (await other).finish_reason == "length"


async def test_a_paused_engine_takes_no_step_and_still_answers(engine: LocalEngine) -> None:
    call = asyncio.ensure_future(engine.generate([1, 2, 3], FOREVER, session="a"))
    await until(lambda stats: stats["generated_tokens"] >= 1, engine)
    await engine.pause()
    steps = (await engine.stats())["steps"]
    waiting = asyncio.ensure_future(engine.generate([4, 5], Sampling(max_tokens=2)))
    stats = await until(lambda stats: stats["waiting"] == 1, engine)
    assert stats["steps"] == steps
    await engine.abort("a")
    assert (await call).finish_reason == "abort"
    assert not waiting.done()
    await engine.resume()
    assert len((await waiting).ids) == 2


async def test_weights_change_under_a_running_call(
    engine: LocalEngine, model_folder: Folder, plain_logprobs: Plain
) -> None:
    old = AutoModelForCausalLM.from_pretrained(model_folder("qwen3"))
    weights = {name: parameter.detach().numpy() * 1.05 for name, parameter in old.named_parameters()}
    call = asyncio.ensure_future(engine.generate([1, 2, 3], FOREVER))
    await until(lambda stats: stats["generated_tokens"] >= 3, engine)
    await engine.update_weights(weights, 3)
    assert (await engine.info()).policy_version == 3
    completion = await call
    versions = list(completion.policy_versions)
    before = versions.count(0)
    assert versions == [0] * before + [3] * (200 - before)
    assert 3 <= before < 200
    expected = plain_logprobs(model_folder("qwen3"), [1, 2, 3], completion)
    np.testing.assert_allclose(completion.logprobs[:before], expected[:before].numpy(), atol=1e-5)


async def test_a_wrong_update_leaves_the_engine_as_it_was(engine: LocalEngine) -> None:
    with pytest.raises(ModelError, match="is missing"):
        await engine.update_weights({}, 3)
    assert (await engine.info()).policy_version == 0
    assert len((await engine.generate([1], Sampling(max_tokens=2))).ids) == 2


async def test_weights_that_are_no_numbers_fail_the_calls_and_good_ones_heal(
    engine: LocalEngine, model_folder: Folder
) -> None:
    good = dict(AutoModelForCausalLM.from_pretrained(model_folder("qwen3")).named_parameters())
    await engine.update_weights({name: torch.full_like(value, float("nan")) for name, value in good.items()}, 1)
    calls = [engine.generate([1, i], Sampling(max_tokens=5)) for i in range(3)]
    for error in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(error, ModelError)
        assert "no finite logits under the weights of version 1" in str(error)
    await engine.update_weights({name: value.detach() for name, value in good.items()}, 2)
    completion = await engine.generate([1, 0], Sampling(max_tokens=5))
    assert all(np.isfinite(completion.logprobs))
    assert await engine.healthy()


async def test_an_engine_that_always_fails_is_not_healthy(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine._core is not None

    def broken() -> list[tuple[int, Completion]]:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine._core, "step", broken)
    for _ in range(3):
        with pytest.raises(ModelError, match="the engine failed: RuntimeError: out of memory"):
            await engine.generate([1], Sampling())
    assert not await engine.healthy()


async def test_stopping_fails_unfinished_calls_and_leaves_no_thread(model_folder: Folder) -> None:
    engine = LocalEngine(model_folder("qwen3"), threads=1)
    await engine.start()
    call = asyncio.ensure_future(engine.generate([1, 2], FOREVER))
    await until(lambda stats: stats["running"] == 1, engine)
    await engine.stop()
    with pytest.raises(ModelError, match="stopped"):
        await call
    assert "agentfly-engine" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ModelError, match="isn't running"):
        await engine.generate([1], Sampling())
    await engine.stop()


async def test_a_model_that_cant_be_loaded_fails_the_start(tmp_path: Any) -> None:
    engine = LocalEngine(str(tmp_path))
    with pytest.raises(ModelError, match="can't load"):
        await engine.start()
    assert not await engine.healthy()
    await engine.stop()


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_running is 0"):
        LocalEngine("x", max_running=0)
    with pytest.raises(ConfigError, match="prefix_bytes is -1"):
        LocalEngine("x", prefix_bytes=-1)


async def test_the_loop_stays_responsive_while_the_engine_works(engine: LocalEngine) -> None:
    """While a batch runs the loop goes round many times for each step."""
    calls = [asyncio.ensure_future(engine.generate([i + 1], Sampling(max_tokens=60))) for i in range(16)]
    rounds = 0
    while not all(call.done() for call in calls):
        await asyncio.sleep(0)
        rounds += 1
    assert rounds > 60
