"""Trajectories on disk: what is read is what was written, bit for bit, or the bad place is named."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agentfly.context.task import Task
from agentfly.errors import ConfigError
from agentfly.rollout.storage import TrajectoryWriter, read_jsonl, read_parquet, write_jsonl, write_parquet
from agentfly.rollout.trajectory import FINISH_REASONS, Segment, Timing, Trajectory

Write = Callable[[Path, Iterable[Trajectory]], None]
Read = Callable[[Path], Iterator[Trajectory]]
FORMATS: list[Any] = [
    pytest.param(write_jsonl, read_jsonl, id="jsonl"),
    pytest.param(write_parquet, read_parquet, id="parquet"),
]

SURROGATES = st.text(st.characters(), max_size=8)  # halves of surrogate pairs included
TEXT = st.text(max_size=12)
NUMBER = st.floats(allow_nan=True, allow_infinity=True)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | SURROGATES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    size = draw(st.integers(0, 6))
    return Segment(
        draw(hnp.arrays(np.int32, size)),
        draw(hnp.arrays(np.bool_, size)),
        draw(hnp.arrays(np.float32, size, elements=st.floats(width=32, allow_nan=False))),
        draw(hnp.arrays(np.int32, size)),
    )


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool"]), "content": SURROGATES},
        optional={"tool_calls": st.lists(st.dictionaries(TEXT, PLAIN, max_size=2), max_size=2)},
    ),
    max_size=3,
)
COUNT = st.integers(0, 2**40)
TRAJECTORIES = st.builds(
    Trajectory,
    rollout_id=TEXT,
    group_id=TEXT,
    index=COUNT,
    task=st.builds(Task, TEXT, st.dictionaries(TEXT, PLAIN, max_size=3)),
    messages=MESSAGES,
    segments=st.lists(segments(), max_size=3),
    finish_reason=st.sampled_from(FINISH_REASONS),
    reward=st.none() | NUMBER,
    metrics=st.dictionaries(TEXT, NUMBER, max_size=3),
    turns=COUNT,
    tool_calls=COUNT,
    tool_errors=COUNT,
    truncated=st.booleans(),
    attempt=COUNT,
    timing=st.builds(Timing, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER),
    error=st.none() | TEXT,
)


def comparable(trajectory: Trajectory) -> Any:
    """All fields, floats as their bits, so that NaN equals NaN and -0.0 isn't 0.0."""

    def bits(value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if math.isnan(value) else value.hex()
        if isinstance(value, dict):
            return {key: bits(item) for key, item in value.items()}
        return [bits(item) for item in value] if isinstance(value, list) else value

    record = {field.name: getattr(trajectory, field.name) for field in dataclasses.fields(trajectory)}
    record["segments"] = [
        [(array.dtype.str, array.tobytes()) for array in (one.ids, one.mask, one.logprobs, one.versions)]
        for one in trajectory.segments
    ]
    record["timing"] = dataclasses.asdict(trajectory.timing)
    record["task"] = [trajectory.task.id, dict(trajectory.task.fields)]
    return bits(record)


@pytest.mark.parametrize(("write", "read"), FORMATS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trajectories=st.lists(TRAJECTORIES, max_size=4))
def test_nothing_is_lost(tmp_path: Path, write: Write, read: Read, trajectories: list[Trajectory]) -> None:
    path = tmp_path / "trajectories"
    write(path, trajectories)
    assert [comparable(one) for one in read(path)] == [comparable(one) for one in trajectories]
    assert os.listdir(tmp_path) == ["trajectories"]


def trajectory(index: int = 0, **changes: Any) -> Trajectory:
    logprobs = np.array([0.0, -0.1, -1e-38, -3.4e38], np.float32)
    segment = Segment(
        np.array([1, 2, 3, 4], np.int32),
        np.array([False, True, True, True]),
        logprobs,
        np.array([-1, 0, 0, 1], np.int32),
    )
    values: dict[str, Any] = {
        "messages": [{"role": "user", "content": "中文 🙂"}],
        "segments": [segment],
        "reward": 0.1,
    }
    task = Task(f"t{index}", {"answer": "ü", "n": index})
    return Trajectory(f"g.{index}", "g", index, task, **{**values, **changes})


@pytest.mark.parametrize(("write", "read"), FORMATS)
def test_every_float32_comes_back_bit_for_bit(tmp_path: Path, write: Write, read: Read) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    logprobs = bits[np.isfinite(bits)]
    size = len(logprobs)
    segment = Segment(np.zeros(size, np.int32), np.ones(size, np.bool_), logprobs, np.zeros(size, np.int32))
    write(tmp_path / "one", [trajectory(segments=[segment])])
    (back,) = read(tmp_path / "one")
    assert back.segments[0].logprobs.tobytes() == logprobs.tobytes()


def test_unicode_stays_readable_in_json(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trajectory()])
    assert "中文 🙂" in (tmp_path / "a.jsonl").read_text(encoding="utf-8")


def test_parquet_has_columns_that_other_tools_can_use(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [trajectory(one, metrics={"m": 1.0}) for one in range(5)], rows_per_group=2)
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert file.num_row_groups == 3
    table = file.read()
    assert table["ids"].to_pylist()[0] == [[1, 2, 3, 4]]
    assert table["mask"].to_pylist()[0] == [[False, True, True, True]]
    assert json.loads(table["task_fields"][4].as_py()) == {"answer": "ü", "n": 4}
    assert table["metrics"][0].as_py() == [("m", 1.0)]


@pytest.mark.parametrize(("write", "read"), FORMATS)
def test_numpy_numbers_are_numbers(tmp_path: Path, write: Write, read: Read) -> None:
    odd = trajectory(reward=np.float32(0.5), metrics={"m": np.float64(2)}, turns=np.int64(3))
    write(tmp_path / "one", [odd])
    (back,) = read(tmp_path / "one")
    assert (back.reward, back.metrics, back.turns) == (0.5, {"m": 2.0}, 3)


@pytest.mark.parametrize(("write", "read"), FORMATS)
@pytest.mark.parametrize("value", [b"bytes", object(), {1, 2}])
def test_what_is_no_data_is_named_and_no_file_is_left(tmp_path: Path, write: Write, read: Read, value: object) -> None:
    bad = trajectory(7)
    bad.task = Task("t", {"field": value})
    with pytest.raises(ConfigError, match=r"trajectory '?g\.7'? can't be stored"):
        write(tmp_path / "one", [trajectory(), bad])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("write", "read"), FORMATS)
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, write: Write, read: Read) -> None:
    path = tmp_path / "one"
    write(path, [trajectory(1)])

    def failing() -> Iterator[Trajectory]:
        yield trajectory(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, failing())
    assert [one.index for one in read(path)] == [1]
    assert os.listdir(tmp_path) == ["one"]


@pytest.mark.parametrize(("write", "read"), FORMATS)
def test_files_that_are_not_there_or_can_not_be_written(tmp_path: Path, write: Write, read: Read) -> None:
    with pytest.raises(ConfigError, match=r"can't read trajectories from .*nowhere"):
        list(read(tmp_path / "nowhere"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't write trajectories to"):
        write(tmp_path / "file" / "one", [trajectory()])


def bad_record(**changes: Any) -> str:
    from agentfly.rollout.records import to_record

    record = {**to_record(trajectory()), **changes}
    return json.dumps({name: value for name, value in record.items() if value != "absent"})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "Expecting value"),
        ('{"rollout_id": "a', "Invalid control character"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "recursion"),
        (bad_record(group_id="absent"), "group_id"),
        (bad_record(task="absent"), "task is missing"),
        (bad_record(task={"id": 1, "fields": {}}), "1 is no text"),
        (bad_record(finish_reason="tired"), "tired"),
        (bad_record(extra=1), "extra"),
        (bad_record(messages="hello"), "messages"),
        (bad_record(segments=[{"ids": [1], "mask": [True], "logprobs": [0.0], "versions": []}]), "one length"),
        (bad_record(segments=[{"ids": ["a"], "mask": [1], "logprobs": [0.0], "versions": [0]}]), "invalid literal"),
        (bad_record(segments=[{"ids": 1, "mask": 1, "logprobs": 0, "versions": 0}]), "lists of numbers"),
        (bad_record(segments=[{"ids": [2**40], "mask": [1], "logprobs": [0], "versions": [0]}]), "out of bounds"),
        (bad_record(timing={"lunch": 1.0}), "lunch"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "bad.jsonl"
    write_jsonl(path, [trajectory()])
    path.write_text(path.read_text() + line + "\n")
    found = read_jsonl(path)
    assert next(found).index == 0
    with pytest.raises(ConfigError, match=rf"bad\.jsonl, line 2 is no trajectory: .*{reason}") as caught:
        next(found)
    assert "\n" not in str(caught.value)


def test_a_line_of_rubbish_bytes_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(ConfigError, match="line 1"):
        list(read_jsonl(tmp_path / "bad.jsonl"))


def test_bad_parquet_files_are_named(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "bad.parquet"
    path.write_text("not a table")
    with pytest.raises(ConfigError, match=r"can't read trajectories from .*bad\.parquet"):
        list(read_parquet(path))
    pq.write_table(pa.table({"prompt": ["a"]}), path)
    with pytest.raises(ConfigError, match=r"lacks rollout_id, .*, error"):
        list(read_parquet(path))
    write_parquet(path, [trajectory(), trajectory(1)])
    table = pq.read_table(path)
    broken = table.set_column(table.schema.get_field_index("messages"), "messages", pa.array(["[]", "[{"]))
    pq.write_table(broken, path)
    found = read_parquet(path)
    assert next(found).index == 0
    with pytest.raises(ConfigError, match=r"bad\.parquet, row 2 is no trajectory"):
        next(found)


class TestWriter:
    def test_what_was_written_is_there_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "run" / "a.jsonl"
        with TrajectoryWriter(path) as writer:
            writer.write(trajectory(0))
            assert [one.index for one in read_jsonl(path)] == [0]
        with TrajectoryWriter(path) as writer:
            writer.write(trajectory(1))
        assert [one.index for one in read_jsonl(path)] == [0, 1]

    def test_a_line_that_a_killed_process_left_is_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        with TrajectoryWriter(path) as writer:
            writer.write(trajectory(0))
        whole = path.read_bytes()
        for torn in (whole[:-5], b"x" * 200_000):
            path.write_bytes(whole + torn)
            with TrajectoryWriter(path) as writer:
                assert writer.position == len(whole)
        path.write_bytes(b"never finished")
        with TrajectoryWriter(path) as writer:
            assert writer.position == 0

    def test_a_resumed_job_goes_on_where_its_checkpoint_was(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        with TrajectoryWriter(path) as writer:
            writer.write(trajectory(0))
            checkpoint = writer.position
            writer.write(trajectory(1))
            writer.write(trajectory(2))
        with TrajectoryWriter(path, position=checkpoint) as writer:
            writer.write(trajectory(3))
        assert [one.index for one in read_jsonl(path)] == [0, 3]
        with pytest.raises(ConfigError, match="fewer than the 999999999"):
            TrajectoryWriter(path, position=999_999_999)

    def test_what_can_not_be_stored_leaves_the_file_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        with TrajectoryWriter(path) as writer:
            bad = trajectory(0)
            bad.task = Task("t", {"field": b"bytes"})
            with pytest.raises(ConfigError, match="bytes"):
                writer.write(bad)
            writer.write(trajectory(1))
        assert [one.index for one in read_jsonl(path)] == [1]

    def test_a_place_that_can_not_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="can't write trajectories to"):
            TrajectoryWriter(tmp_path / "file" / "a.jsonl")
