"""The scripted engine: it ends, is cut, counts turns and waits as a model would."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentfly.errors import ConfigError, ModelError
from agentfly.models.engine import Completion, EngineInfo, Sampling
from agentfly.models.scripted import Script, ScriptedEngine
from agentfly.models.spec import ModelSpec
from agentfly.models.tiny import build_tokenizer

STOP = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(["some words to learn from"], 300, folder)
    return folder


async def started(
    folder: Path, script: Script | str, *, seconds_per_token: float = 0.0, max_context: int = 999
) -> ScriptedEngine:
    engine = ScriptedEngine(str(folder), script, seconds_per_token=seconds_per_token, max_context=max_context)
    await engine.start()
    return engine


def echo(prompt: str, turn: int, seed: int) -> str:
    return f"{prompt}|{turn}|{seed}"


def text_of(folder: Path, completion: Completion) -> str:
    from tokenizers import Tokenizer

    decoded: str = Tokenizer.from_file(str(folder / "tokenizer.json")).decode(
        list(completion.ids), skip_special_tokens=False
    )
    return decoded


def ids_of(folder: Path, text: str) -> list[int]:
    from tokenizers import Tokenizer

    ids: list[int] = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    return ids


async def test_the_script_sees_prompt_turn_and_seed(folder: Path) -> None:
    engine = await started(folder, echo)
    prompt = ids_of(folder, "<|im_start|>ü🙂")
    said = await engine.generate(prompt, Sampling(stop_token_ids=(STOP, 0), seed=5), session="a")
    assert text_of(folder, said) == "<|im_start|>ü🙂|0|5<|im_end|>"
    assert said.finish_reason == "stop"
    assert said.logprobs == [0.0] * len(said.ids)
    assert said.policy_versions == [0] * len(said.ids)
    bare = await engine.generate(prompt, Sampling(), session="a")
    assert text_of(folder, bare) == "<|im_start|>ü🙂|0|0"
    assert bare.finish_reason == "stop"


async def test_turns_are_counted_in_each_session(folder: Path) -> None:
    engine = await started(folder, lambda prompt, turn, seed: f"<think>{turn}")

    async def turn(session: str, prompt: str) -> str:
        said = await engine.generate(ids_of(folder, prompt), Sampling(), session=session)
        return text_of(folder, said).removeprefix("<think>")

    asked = [("a", "x"), ("a", "xy"), ("b", "x"), ("a", "z"), ("a", "x"), ("a", "xy"), ("", "x"), ("", "xy")]
    assert [await turn(*one) for one in asked] == ["0", "1", "0", "2", "0", "1", "0", "0"]
    await engine.abort("a")
    assert await turn("a", "xy") == "0"


async def test_a_completion_is_cut_by_its_limits(folder: Path) -> None:
    engine = await started(folder, lambda prompt, turn, seed: "12345<|im_end|>678", max_context=10)
    whole = await engine.generate([5], Sampling(stop_token_ids=(STOP,)))
    assert text_of(folder, whole) == "12345<|im_end|>"
    assert whole.finish_reason == "stop"
    exact = await engine.generate([5], Sampling(max_tokens=6, stop_token_ids=(STOP,)))
    assert exact.finish_reason == "stop"
    cut = await engine.generate([5], Sampling(max_tokens=5, stop_token_ids=(STOP,)))
    assert text_of(folder, cut) == "12345"
    assert cut.finish_reason == "length"
    full = await engine.generate([5] * 8, Sampling(stop_token_ids=(STOP,)))
    assert text_of(folder, full) == "12"
    assert full.finish_reason == "length"
    with pytest.raises(ModelError, match="no room"):
        await engine.generate([5] * 10, Sampling())


async def test_versions_follow_the_weights(folder: Path) -> None:
    engine = await started(folder, echo)
    await engine.update_weights({}, 7)
    assert await engine.info() == EngineInfo(999, 7)
    assert set((await engine.generate([5], Sampling())).policy_versions) == {7}


async def test_an_abort_ends_with_what_there_is(folder: Path) -> None:
    engine = await started(folder, lambda prompt, turn, seed: "1234567890", seconds_per_token=1000.0)
    one = asyncio.create_task(engine.generate([5], Sampling(), session="a"))
    other = asyncio.create_task(engine.generate([5], Sampling(), session="b"))
    await asyncio.sleep(0)
    assert (await engine.stats())["running"] == 2
    await engine.abort("a")
    said = await one
    assert (said.finish_reason, list(said.ids)) == ("abort", [])
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert (await engine.stats())["running"] == 0


async def test_a_slow_engine_ends_by_itself(folder: Path) -> None:
    engine = await started(folder, lambda prompt, turn, seed: "123", seconds_per_token=0.01)
    loop = asyncio.get_running_loop()
    before = loop.time()
    said = await engine.generate([5], Sampling(), session="a")
    assert loop.time() - before >= 0.03
    assert said.finish_reason == "stop"
    assert len(said.ids) == 3
    assert await engine.stats() == {"prompt_tokens": 1, "cached_tokens": 0, "generated_tokens": 3, "running": 0}


async def test_a_script_that_fails_is_a_failed_model(folder: Path) -> None:
    def broken(prompt: str, turn: int, seed: int) -> str:
        raise (ModelError("down") if turn else KeyError("x"))

    engine = await started(folder, broken)
    with pytest.raises(ModelError, match="the script raised KeyError"):
        await engine.generate([5], Sampling(), session="a")
    with pytest.raises(ModelError, match="^down$"):
        await engine.generate([5, 6], Sampling(), session="a")
    with pytest.raises(ModelError, match="not started"):
        await ScriptedEngine(str(folder), echo).generate([5], Sampling())


async def test_a_missing_tokenizer_or_script_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no tokenizer at .*tokenizer\.json"):
        await ScriptedEngine(str(tmp_path), echo).start()
    for script in ("nowhere:echo", "json:nothing", "json:__name__", "json"):
        with pytest.raises(ConfigError, match=rf"the script '{script}'"):
            ScriptedEngine(str(folder), script)


def test_it_is_an_engine_that_a_model_spec_can_name(folder: Path) -> None:
    spec = ModelSpec(engine="scripted", path=str(folder), options={"script": echo})
    assert spec.speaks == "tokens"
    assert spec.resource is ScriptedEngine
    assert ModelSpec(engine="openai", path="m").speaks == "messages"
