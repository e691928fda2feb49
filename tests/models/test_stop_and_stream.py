"""Stop texts, streams, priorities and pauses of the engines that have a tokenizer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rollout.tiny_tokenizer import build_folder
from tokenizers import Tokenizer

from agentfly.errors import ModelError
from agentfly.models.engine import Completion, Piece, Sampling
from agentfly.models.local.engine import LocalEngine
from agentfly.models.scripted import ScriptedEngine
from agentfly.models.tiny import build_model

Plain = Callable[..., torch.Tensor]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = build_folder(tmp_path_factory.mktemp("model"))
    build_model(Path(made), hidden=32, layers=2, max_context=256)
    return made


@pytest.fixture
async def engine(folder: str) -> AsyncIterator[LocalEngine]:
    running = LocalEngine(folder, threads=1, max_running=2)
    await running.start()
    yield running
    await running.stop()


async def collect(stream: AsyncIterator[Piece]) -> list[Piece]:
    return [piece async for piece in stream]


async def test_a_stop_text_ends_a_completion_at_the_token_that_completes_it(
    engine: LocalEngine, folder: str, plain_logprobs: Plain
) -> None:
    """Against the same completion without a stop: its texts, cut at every place, must stop it there."""
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    whole = await engine.generate([5, 6, 7], Sampling(max_tokens=60, seed=1))
    texts = [tokenizer.decode(list(whole.ids[:n]), skip_special_tokens=False) for n in range(1, 61)]
    wanted = {texts[-1][place : place + 3] for place in range(3, len(texts[-1]) - 3, 7)}
    wanted = {stop for stop in wanted if "\ufffd" not in stop}
    assert len(wanted) >= 5
    for stop in wanted:
        stopped = await engine.generate([5, 6, 7], Sampling(max_tokens=60, seed=1, stop=("never said", stop)))
        length = next(n for n, text in enumerate(texts, 1) if stop in text)
        assert list(stopped.ids) == list(whole.ids[:length])
        assert (stopped.finish_reason, stopped.stop) == ("stop", stop)
        expected = plain_logprobs(folder, [5, 6, 7], stopped)
        np.testing.assert_allclose(stopped.logprobs, expected.numpy(), atol=1e-5)


async def test_a_stop_text_that_isnt_said_changes_nothing(engine: LocalEngine) -> None:
    plain = await engine.generate([5], Sampling(max_tokens=20, seed=2))
    asked = await engine.generate([5], Sampling(max_tokens=20, seed=2, stop=("\u4e2d\u6587",)))
    assert (list(asked.ids), asked.finish_reason, asked.stop) == (list(plain.ids), "length", None)


async def test_an_empty_stop_text_is_refused(engine: LocalEngine) -> None:
    with pytest.raises(ModelError, match="stop holds an empty text"):
        await engine.generate([1], Sampling(stop=("",)))


async def test_stop_texts_need_a_tokenizer(model_folder: Callable[[str], str]) -> None:
    engine = LocalEngine(model_folder("qwen3"), threads=1)
    await engine.start()
    try:
        with pytest.raises(ModelError, match="stop texts need a tokenizer"):
            await engine.generate([1], Sampling(stop=("a",)))
    finally:
        await engine.stop()


async def test_a_stream_is_the_same_completion_in_pieces(
    engine: LocalEngine, plain_logprobs: Plain, folder: str
) -> None:
    sampling = Sampling(max_tokens=40, seed=3)
    pieces, other = await asyncio.gather(
        collect(engine.stream([1, 2, 3], sampling)), engine.generate([1, 2, 3], Sampling(max_tokens=10, seed=4))
    )
    whole = await engine.generate([1, 2, 3], sampling)
    assert [token for piece in pieces for token in piece.ids] == list(whole.ids)
    logprobs = [logprob for piece in pieces for logprob in piece.logprobs]
    np.testing.assert_allclose(logprobs, plain_logprobs(folder, [1, 2, 3], whole).numpy(), atol=1e-5)
    assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert len(pieces) > 5
    assert len(other.ids) == 10


async def test_a_stream_says_what_stopped_it(engine: LocalEngine) -> None:
    whole = await engine.generate([1, 2, 3], Sampling(max_tokens=40, seed=3))
    pieces = await collect(engine.stream([1, 2, 3], Sampling(max_tokens=40, seed=3, stop_token_ids=(whole.ids[4],))))
    assert pieces[-1].finish_reason == "stop"
    assert [token for piece in pieces for token in piece.ids] == list(
        whole.ids[: list(whole.ids).index(whole.ids[4]) + 1]
    )


async def test_who_stops_listening_frees_the_row(engine: LocalEngine) -> None:
    stream = engine.stream([1, 2], Sampling(max_tokens=200, seed=0))
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    stats = await engine.stats()
    assert (stats["running"], stats["waiting"]) == (0, 0)


async def test_an_aborted_stream_ends_with_what_it_has(engine: LocalEngine) -> None:
    stream = engine.stream([1, 2], Sampling(max_tokens=200, seed=0), session="s")
    first = await anext(stream)
    await engine.abort("s")
    rest = await collect(stream)
    assert rest[-1].finish_reason == "abort"
    assert 1 <= len(first.ids) + sum(len(piece.ids) for piece in rest) < 200


async def test_a_stream_fails_when_the_engine_stops(folder: str) -> None:
    engine = LocalEngine(folder, threads=1)
    await engine.start()
    stream = engine.stream([1, 2], Sampling(max_tokens=200, seed=0))
    await anext(stream)
    await engine.stop()
    with pytest.raises(ModelError, match="stopped"):
        await collect(stream)


async def test_the_lower_priority_runs_first_when_the_batch_is_full(engine: LocalEngine) -> None:
    order: list[int] = []

    async def call(priority: int) -> None:
        await engine.generate([1, priority + 1], Sampling(max_tokens=3, seed=0), priority=priority)
        order.append(priority)

    await engine.pause()
    calls = [asyncio.ensure_future(call(priority)) for priority in (5, 3, 4, 1, 2, 0)]
    while (await engine.stats())["waiting"] < 6:
        pass
    await engine.resume()
    await asyncio.gather(*calls)
    assert [set(order[index : index + 2]) for index in (0, 2, 4)] == [{0, 1}, {2, 3}, {4, 5}]


def stopping_script(prompt: str, turn: int, seed: int) -> str:
    return "one STOP two"


async def test_a_script_is_stopped_streamed_and_paused(folder: str) -> None:
    engine = ScriptedEngine(folder, stopping_script)
    await engine.start()
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    await engine.pause()
    call = asyncio.ensure_future(engine.generate([1], Sampling(stop=("OP t",))))
    await asyncio.sleep(0)
    assert not call.done()
    await engine.resume()
    completion: Completion = await call
    text = tokenizer.decode(list(completion.ids))
    assert "OP t" in text
    assert "OP t" not in tokenizer.decode(list(completion.ids[:-1]))
    assert completion.stop == "OP t"
    pieces = await collect(engine.stream([1], Sampling(stop=("OP t",))))
    assert [token for piece in pieces for token in piece.ids] == list(completion.ids)
    assert pieces[-1].stop == "OP t"
