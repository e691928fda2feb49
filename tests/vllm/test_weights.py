"""New weights in a running engine."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from assets import Weights, difference, logprobs, shaken, weights_of

from agentfly.errors import ModelError
from agentfly.models.engine import Completion, Sampling
from agentfly.models.vllm.engine import VllmEngine

PROMPT = [(i * 7) % 300 + 9 for i in range(200)]


async def check_updates(engine: VllmEngine, path: str) -> None:
    """After each update tokens and cache are of the new weights only."""
    old = weights_of(path)
    for version, weights in ((1, shaken(old, 1)), (2, shaken(old, 2)), (3, old)):
        await engine.update_weights(weights, version)
        assert (await engine.info()).policy_version == version
        for _ in range(2):  # the second from the prefix cache
            completion = await engine.generate(PROMPT, Sampling(max_tokens=40))
            assert set(completion.policy_versions) == {version}
            expected = logprobs(path, PROMPT, completion.ids, weights=weights)
            assert difference(completion.logprobs, expected) < 1e-4


async def test_updates_of_a_tied_output_layer(engine: VllmEngine, tied: str) -> None:
    await check_updates(engine, tied)


async def test_updates_of_an_output_layer_of_its_own(untied_engine: VllmEngine, untied: str) -> None:
    await check_updates(untied_engine, untied)


async def test_calls_go_on_under_new_weights_and_each_token_knows_its_own(engine: VllmEngine, tied: str) -> None:
    old, new = weights_of(tied), shaken(weights_of(tied), 3)
    await engine.update_weights(old, 10)
    sampling = Sampling(max_tokens=500)
    begun = asyncio.Event()

    async def listen() -> Completion:
        parts = []
        async for piece in engine.stream(PROMPT, sampling):
            parts.append(piece)
            if sum(len(part.ids) for part in parts) >= 20:
                begun.set()
        return Completion(
            [token for part in parts for token in part.ids],
            [logprob for part in parts for logprob in part.logprobs],
            [version for part in parts for version in part.policy_versions],
            "length",
        )

    calls = [asyncio.create_task(listen()), asyncio.create_task(engine.generate(PROMPT, sampling))]
    await begun.wait()
    await engine.update_weights(new, 11)
    for completion in await asyncio.gather(*calls):
        versions = list(completion.policy_versions)
        assert len(completion.ids) == len(versions) == 500
        assert sorted(versions) == versions
        assert set(versions) == {10, 11}
        change = versions.index(11)
        before = logprobs(tied, PROMPT, completion.ids, weights=old)
        after = logprobs(tied, PROMPT, completion.ids, weights=new)
        # Exact on both sides: what had been computed was computed anew.
        assert difference(completion.logprobs[:change], before[:change]) < 1e-4
        assert difference(completion.logprobs[change:], after[change:]) < 1e-4
        assert difference(before[change:], after[change:]) > 0.1
    await engine.update_weights(old, 12)


async def test_an_update_while_paused_leaves_it_paused(engine: VllmEngine, tied: str) -> None:
    await engine.pause()
    await engine.update_weights(weights_of(tied), 20)
    call = asyncio.create_task(engine.generate(PROMPT, Sampling(max_tokens=3)))
    done, _ = await asyncio.wait([call], timeout=0.3)
    assert not done
    await engine.resume()
    assert set((await call).policy_versions) == {20}


async def test_wrong_weights_replace_nothing(engine: VllmEngine, tied: str) -> None:
    right = weights_of(tied)
    name = next(iter(right))
    wrong: list[tuple[Weights, str]] = [
        ({**right, "no.such": np.zeros(1, np.float32)}, "no weight 'no.such'"),
        ({key: value for key, value in right.items() if key != name}, "is missing"),
        ({**right, name: np.zeros((2, 2), np.float32)}, "has shape"),
    ]
    version = (await engine.info()).policy_version
    for weights, complaint in wrong:
        with pytest.raises(ModelError, match=complaint):
            await engine.update_weights(weights, 99)
    assert (await engine.info()).policy_version == version
    completion = await engine.generate(PROMPT, Sampling(max_tokens=10))
    assert difference(completion.logprobs, logprobs(tied, PROMPT, completion.ids)) < 1e-4
