"""The parts of the verl backend that decide: rows, groups, tasks, settings, versions, translation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agentfly.backends.verl import versions
from agentfly.backends.verl.engine import Call, CallLog, VerlEngine
from agentfly.backends.verl.fields import TASK_COLUMN, as_column, task_of
from agentfly.backends.verl.groups import GroupBook
from agentfly.backends.verl.outputs import _calls_of, steps_of
from agentfly.backends.verl.progress import MetricsFile, Positions
from agentfly.backends.verl.rows import chat_turns, rows_of
from agentfly.backends.verl.sampling import is_validation, sampling_of
from agentfly.backends.verl.settings import read_settings
from agentfly.backends.verl.translation import passed_through
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from packaging.specifiers import SpecifierSet
from verl.workers.rollout.replica import TokenOutput

from agentfly.context import Task
from agentfly.errors import ConfigError, ModelError
from agentfly.models.engine import Sampling
from agentfly.rollout.trajectory import SegmentBuilder, Trajectory

PARTS = st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=8)


@given(PARTS)
def test_a_row_trains_on_exactly_what_was_sampled(parts: list[tuple[bool, int]]) -> None:
    builder, sampled, everything = SegmentBuilder(), [], []
    for is_sampled, length in parts:
        ids = list(range(len(everything), len(everything) + length))
        everything += ids
        if is_sampled:
            builder.add_sampled(ids, [-1.0 - token for token in ids], [0] * length)
            sampled += ids
        else:
            builder.add_context(ids)
    rows = rows_of([builder.build()])
    assert len(rows) == bool(sampled)
    for row in rows:
        assert row.prompt_ids + row.response_ids == everything
        assert row.response_mask[0] == 1
        marked = zip(row.response_ids, row.response_mask, row.response_logprobs, strict=True)
        assert [(token, logprob) for token, mask, logprob in marked if mask] == [(t, -1.0 - t) for t in sampled]
        assert all(
            logprob == 0 for mask, logprob in zip(row.response_mask, row.response_logprobs, strict=True) if not mask
        )


def test_turns_are_counted_as_verl_counts_them() -> None:
    roles = ["system", "user", "assistant", "tool", "tool", "assistant"]
    trajectory = Trajectory("g.0", "g", 0, Task("t"), messages=[{"role": role, "content": ""} for role in roles])
    assert chat_turns(trajectory) == 4


@given(st.lists(st.sampled_from(["good", "bad", "cancelled"]), min_size=1, max_size=6), st.randoms())
def test_a_group_is_settled_when_all_of_it_has_ended(ends: list[str], rng: Any) -> None:
    async def member(book: GroupBook, end: str) -> tuple[int, int] | None:
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if end == "cancelled":
            book.leave("g")
            return None
        return await book.settle("g", usable=end == "good")

    async def main() -> list[tuple[int, int] | None]:
        book = GroupBook()
        for _ in ends:
            book.enter("g")
        return await asyncio.wait_for(asyncio.gather(*(member(book, end) for end in ends)), 5)

    standing = (sum(end != "cancelled" for end in ends), ends.count("good"))
    assert asyncio.run(main()) == [None if end == "cancelled" else standing for end in ends]


def test_a_verl_row_is_a_task() -> None:
    row = {
        "raw_prompt": np.array([{"role": "user", "content": "hi"}], dtype=object),
        "extra_info": {"index": 7, "level": "hard", "answer": "inner"},
        "reward_model": {"style": "rule", "ground_truth": "42"},
        "answer": "column",
        "index": np.int64(7),
        "uid": "u",
        "session_id": 1,
        "global_steps": 3,
    }
    task = task_of(row)
    assert task.id == "7"
    assert task["prompt"] == [{"role": "user", "content": "hi"}]
    assert (task["ground_truth"], task["level"], task["answer"]) == ("42", "hard", "column")
    assert "uid" not in task.fields
    whole = Task("x", {"n": 1, "deep": [{"a": None}]})
    assert task_of({**row, TASK_COLUMN: as_column(whole)}) == whole


def test_settings_that_are_wrong_are_named() -> None:
    with pytest.raises(ConfigError, match=r"agent loop 'a': temprature: .* settings are: agent, "):
        read_settings({"agent": "m:a", "temprature": 1}, "agent loop 'a'")
    assert read_settings({"agent": "m:a"}, "x").key == read_settings({"agent": "m:a"}, "y").key


def test_another_verl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    versions.check_versions()
    monkeypatch.setitem(versions._NEEDED, "verl", SpecifierSet("==0.8.0"))
    with pytest.raises(ConfigError, match=r"verl 0\.9\.1 is installed, it must be ==0\.8\.0: pip install"):
        versions.check_versions()


def test_validation_is_known_by_its_sampling() -> None:
    rollout = OmegaConf.create({"temperature": 1.0, "top_p": 1.0, "top_k": -1})
    rollout.val_kwargs = {"temperature": 0, "top_p": 1.0, "top_k": -1}
    training, validation = ({"temperature": t, "top_p": 1.0, "top_k": -1} for t in (1.0, 0))
    assert is_validation(validation, rollout) and not is_validation(training, rollout)
    rollout.val_kwargs = dict(training)
    assert not is_validation(training, rollout)
    assert sampling_of({"temperature": 0.5, "top_k": -1, "stop_token_ids": [5]}, 8) == Sampling(
        max_tokens=8, temperature=0.5, top_k=0, stop_token_ids=(5,)
    )


def test_calls_belong_to_the_rows_that_they_sampled() -> None:
    builders = [SegmentBuilder(), SegmentBuilder()]
    for builder, lengths in zip(builders, [(2, 3), (1,)], strict=True):
        for length in lengths:
            builder.add_context([1])
            builder.add_sampled([2] * length, [-1.0] * length, [0] * length)
    calls = [
        Call(2, 0, {"min_global_steps": 3, "max_global_steps": 3}),
        Call(3, 0, {"min_global_steps": 4}),
        Call(1, 0, {}),
    ]
    first, second = _calls_of(rows_of([builder.build() for builder in builders]), calls)
    assert (first, second) == (calls[:2], calls[2:])
    assert steps_of(first) == {"min_global_steps": 3, "max_global_steps": 3}
    assert steps_of([Call(1, 0, {"max_global_steps": 1}), Call(1, 0, {"max_global_steps": 2})]) == {
        "max_global_steps": 2
    }


class OneAnswer:
    """A server that gives the same answer to all, and keeps what it was asked."""

    def __init__(self, answer: TokenOutput | Exception) -> None:
        self.answer = answer
        self.asked: dict[str, Any] = {}

    async def generate(self, **asked: Any) -> TokenOutput:
        self.asked = asked
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def generate(answer: TokenOutput | Exception, **media: Any) -> tuple[Any, OneAnswer, CallLog]:
    server, log = OneAnswer(answer), CallLog()
    engine = VerlEngine(server, {"temperature": 1.0, "logprobs": True, "max_tokens": 99}, media, 100, log)
    sampling = Sampling(max_tokens=5, stop_token_ids=(9,), seed=1)
    return await engine.generate([1, 2], sampling, session="s"), server, log


async def test_the_engine_passes_on_what_it_does_not_know() -> None:
    output = TokenOutput(
        token_ids=[4, 9], log_probs=[-1.0, -2.0], stop_reason="completed", extra_fields={"global_steps": 6}
    )
    completion, server, log = await generate(output, image_data=["image"], video_data=None)
    assert (completion.ids, completion.logprobs, completion.finish_reason) == ([4, 9], [-1.0, -2.0], "stop")
    assert completion.policy_versions == [6, 6]
    assert server.asked["sampling_params"] == {
        "temperature": 1.0,
        "logprobs": True,
        "max_tokens": 5,
        "stop_token_ids": [9],
    }
    assert server.asked["image_data"] == ["image"] and "video_data" not in server.asked
    assert server.asked["request_id"] == "s"
    assert log.scored and log.preempted == -1


async def test_what_a_server_does_wrong_is_the_models_fault() -> None:
    with pytest.raises(ModelError, match="ValueError: too long"):
        await generate(ValueError("too long"))
    completion, _, _ = await generate(TokenOutput(token_ids=[4], stop_reason="aborted"))
    assert completion.finish_reason == "abort"
    completion, _, log = await generate(TokenOutput(token_ids=[4, 5], stop_reason="completed"))
    assert completion.finish_reason == "length" and not log.scored


def test_the_users_own_settings_are_handed_over_untouched() -> None:
    given = {
        "trainer": {"nnodes": 2, "logger": ["file", "wandb"]},
        "data.seed": None,
        "a": {"b": {"c": 'say "x"'}, "d": {}},
    }
    assert passed_through(given) == [
        "++trainer.nnodes=2",
        '++trainer.logger=["file", "wandb"]',
        "++data.seed=null",
        '++a.b.c="say \\"x\\""',
        "++a.d={}",
    ]


def test_metrics_are_read_as_they_come(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = MetricsFile(file)
    assert list(reader.new()) == []
    line = json.dumps({"step": 1, "data": {"a": 1, "text": "x"}}) + "\n"
    file.write_text(line + line[:10])
    assert [(told.step, told.metrics) for told in reader.new()] == [(1, {"a": 1.0})]
    file.write_text(line + line.replace('"step": 1', '"step": 2'))
    assert [told.step for told in reader.new()] == [2]


def test_a_resumed_run_knows_where_its_trajectories_end(tmp_path: Path) -> None:
    positions = Positions(tmp_path / "positions.json")
    assert positions.at(3) == 0
    for step in (1, 2, 3, 2):
        positions.note(step, step * 10)
    assert (positions.at(1), positions.at(2), positions.at(3)) == (10, 20, 0)
