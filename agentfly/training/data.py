"""Datasets: files of rows to tasks, with the file and the line of whatever is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from agentfly.agent import Agent
from agentfly.context import Task
from agentfly.errors import ConfigError


def load_tasks(path: str | Path) -> list[Task]:
    """Tasks of a `.json` (a list of objects), `.jsonl` or `.parquet` file.

    A row's `id` column names it; without one its content does, so that it stays the same when rows move.

    Raises:
        ConfigError: no such file, not of this form, no rows, or an id that comes twice.
    """
    path = Path(path)
    readers = {".json": _read_json, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise ConfigError(f"{path}: a dataset ends in one of {', '.join(readers)}")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    tasks: dict[str, Task] = {}
    for place, row in readers[path.suffix](path):
        if not isinstance(row, dict):
            raise ConfigError(f"{place}: a row is an object of fields, this is {type(row).__name__}")
        task = _task(row)
        if task.id in tasks:
            raise ConfigError(f"{place}: the id {task.id!r} comes twice: give each row its own")
        tasks[task.id] = task
    if not tasks:
        raise ConfigError(f"{path}: there are no rows")
    return list(tasks.values())


def check_tasks(agent: Agent, tasks: Sequence[Task], where: str) -> None:
    """Every field that the agent asks for is in every row.

    Raises:
        ConfigError: naming the first row that lacks one.
    """
    checked: set[frozenset[str]] = set()
    for number, task in enumerate(tasks, start=1):
        fields = frozenset(task.fields)
        if fields in checked:
            continue
        try:
            agent.check(fields)
        except ConfigError as error:
            raise ConfigError(f"{where}, row {number} (id {task.id!r}): {error}") from None
        checked.add(fields)


def _task(row: Mapping[str, Any]) -> Task:
    fields = dict(row)
    given = fields.pop("id", None)
    if given is not None:
        return Task(str(given), fields)
    content = json.dumps(fields, sort_keys=True, default=str).encode()
    return Task(blake2b(content, digest_size=6).hexdigest(), fields)


def _read_json(path: Path) -> Iterator[tuple[str, Any]]:
    rows = _parse(path.read_bytes(), str(path))
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: a JSON dataset is a list of objects, this is {type(rows).__name__}")
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _read_jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                place = f"{path}:{number}"
                yield place, _parse(line, place)


def _read_parquet(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(path)
        number = 0
        for batch in file.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: no Parquet: {str(error).splitlines()[0]}") from None


def _parse(data: bytes, place: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise ConfigError(f"{place}: no JSON: {error}") from None
