"""Calls that are ended from outside, and the engine that holds still."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import psutil
import pytest
from assets import options

from agentfly.errors import ModelError, ResourceDied
from agentfly.models.engine import Sampling
from agentfly.models.vllm.engine import VllmEngine

PROMPT = [9, 10, 11, 12]
LONG = Sampling(max_tokens=900)


async def unfinished(engine: VllmEngine) -> int:
    """Requests that vLLM itself still works on."""
    return engine._engine().get_num_unfinished_requests()


async def test_a_session_is_aborted_with_what_it_has(engine: VllmEngine) -> None:
    begun = asyncio.Event()

    async def listen() -> list[int]:
        ids: list[int] = []
        async for piece in engine.stream(PROMPT, LONG, session="mine"):
            ids += piece.ids
            if len(ids) >= 5:
                begun.set()
            reason.append(piece.finish_reason)
        return ids

    reason: list[str | None] = []
    streamed = asyncio.create_task(listen())
    called = asyncio.create_task(engine.generate(PROMPT, LONG, session="mine"))
    other = asyncio.create_task(engine.generate(PROMPT, Sampling(max_tokens=200), session="other"))
    await begun.wait()
    await engine.abort("mine")
    ids, completion = await asyncio.gather(streamed, called)
    assert 5 <= len(ids) < 900
    assert reason[-1] == "abort"
    assert completion.finish_reason == "abort"
    assert len(completion.ids) == len(completion.logprobs) == len(completion.policy_versions) < 900
    assert (await other).finish_reason == "length"
    await engine.abort("nobody")


async def test_a_cancelled_call_leaves_vllm(engine: VllmEngine) -> None:
    call = asyncio.create_task(engine.generate(PROMPT, LONG))
    async with aclosing(engine.stream(PROMPT, Sampling(max_tokens=200))) as pieces:  # type: ignore[type-var]
        async for _ in pieces:
            break  # the call is in the batch as well by now
    assert await unfinished(engine) == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await unfinished(engine) == 0
    assert (await engine.stats())["running"] == 0.0


async def test_a_paused_engine_samples_nothing(engine: VllmEngine) -> None:
    await engine.pause()
    call = asyncio.create_task(engine.generate(PROMPT, Sampling(max_tokens=3)))
    done, _ = await asyncio.wait([call], timeout=0.3)
    assert not done
    await engine.resume()
    assert len((await call).ids) == 3


async def test_what_needs_options_says_so(engine: VllmEngine) -> None:
    with pytest.raises(ModelError, match="sleep_mode"):
        await engine.sleep()
    with pytest.raises(ModelError, match="option adapter"):
        await engine.update_adapter("somewhere", 1)


async def test_an_engine_that_is_not_started_says_so() -> None:
    with pytest.raises(ModelError, match="isn't running"):
        await VllmEngine("nowhere").generate([1], Sampling())


async def test_when_vllm_dies_no_call_is_to_blame(untied: str) -> None:
    engine = VllmEngine(untied, **options())
    await engine.start()
    assert await engine.healthy()
    call = asyncio.create_task(engine.generate(PROMPT, LONG))
    async with aclosing(engine.stream(PROMPT, LONG)) as pieces:  # type: ignore[type-var]
        async for _ in pieces:
            break  # both are in the batch by now
        for process in psutil.Process().children(recursive=True):
            if process.name().startswith("VLLM::"):
                process.kill()
        with pytest.raises(ResourceDied, match="have ended"):
            await call
    assert not await engine.healthy()
    await engine.stop()
