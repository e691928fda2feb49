"""Trajectories as rows of a Parquet file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from agentfly.errors import ConfigError
from agentfly.rollout.records import from_record, to_json, to_record
from agentfly.rollout.trajectory import Timing, Trajectory

_ARRAYS = ("ids", "mask", "logprobs", "versions")
_TIMES = tuple(field.name for field in fields(Timing))


def schema() -> Any:
    """The `pyarrow.Schema` of a file of trajectories."""
    import pyarrow as pa

    tokens = {"ids": pa.int32(), "mask": pa.bool_(), "logprobs": pa.float32(), "versions": pa.int32()}
    return pa.schema(
        [
            ("rollout_id", pa.string()),
            ("group_id", pa.string()),
            ("index", pa.int64()),
            ("task_id", pa.string()),
            ("task_fields", pa.string()),
            ("messages", pa.string()),
            *((name, pa.list_(pa.list_(kind))) for name, kind in tokens.items()),
            ("finish_reason", pa.string()),
            ("reward", pa.float64()),
            ("metrics", pa.map_(pa.string(), pa.float64())),
            ("turns", pa.int64()),
            ("tool_calls", pa.int64()),
            ("tool_errors", pa.int64()),
            ("truncated", pa.bool_()),
            ("attempt", pa.int64()),
            *((f"seconds_{name}", pa.float64()) for name in _TIMES),
            ("error", pa.string()),
        ]
    )


def write(path: Path, trajectories: Iterable[Trajectory], rows_per_group: int) -> None:
    """Write rows, `rows_per_group` at a time.

    Raises:
        ConfigError: a trajectory holds what can't be stored; naming it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = iter(trajectories)
    table_schema = schema()
    with pq.ParquetWriter(path, table_schema) as writer:
        while batch := list(itertools.islice(source, rows_per_group)):
            tables = [_one_row(trajectory, table_schema) for trajectory in batch]
            writer.write_table(pa.concat_tables(tables).combine_chunks())


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a file, one row group in memory at a time.

    Raises:
        ConfigError: it is no Parquet file, or lacks columns of a trajectory.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            missing = [name for name in schema().names if name not in file.schema_arrow.names]
            if missing:
                raise ConfigError(f"{path} is no file of trajectories: it lacks {', '.join(missing)}")
            for batch in file.iter_batches(batch_size=256):
                yield from batch.to_pylist(maps_as_pydicts="strict")
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"can't read trajectories from {path}: {' '.join(str(error).split())}") from error


def _one_row(trajectory: Trajectory, table_schema: Any) -> Any:
    """A table of one row.

    Raises:
        ConfigError: a value can't be stored; naming the trajectory.
    """
    import pyarrow as pa

    row = to_record(trajectory)
    task, segments, timing = row.pop("task"), row.pop("segments"), row.pop("timing")
    try:
        row |= {"task_id": task["id"], "task_fields": to_json(task["fields"]), "messages": to_json(row["messages"])}
        row |= {name: [segment[name] for segment in segments] for name in _ARRAYS}
        row |= {f"seconds_{name}": timing[name] for name in _TIMES}
        row["metrics"] = list(row["metrics"].items())
        if row["error"] is not None:
            # The text of a foreign exception may hold bytes that are no text; better altered than the row lost.
            row["error"] = row["error"].encode("utf-8", "backslashreplace").decode()
        return pa.Table.from_pylist([row], schema=table_schema)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise ConfigError(f"trajectory {trajectory.rollout_id!r} can't be stored: {error}") from error


def from_row(row: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a row.

    Raises:
        KeyError, TypeError, ValueError: it holds none.
    """
    record = {name: value for name, value in row.items() if name in {field.name for field in fields(Trajectory)}}
    record["task"] = {"id": row["task_id"], "fields": json.loads(row["task_fields"])}
    record["messages"] = json.loads(row["messages"])
    count = len(row["ids"])
    record["segments"] = [{name: row[name][index] for name in _ARRAYS} for index in range(count)]
    record["timing"] = {name: row[f"seconds_{name}"] for name in _TIMES}
    return from_record(record)
