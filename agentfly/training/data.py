"""Datasets: files of rows to tasks, with the file and the line of whatever is wrong."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from agentfly.agent import Agent, load_object
from agentfly.context import Task
from agentfly.errors import ConfigError


def is_function(place: str) -> bool:
    """Whether tasks are named as `module:function` rather than as a file."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", place) is not None


def load_tasks(path: str | Path) -> list[Task]:
    """Tasks of a `.json` (a list of objects), `.jsonl` or `.parquet` file, or of a `module:function` that makes them.

    A row's `id` column names it; without one its content does, so that it stays the same when rows move.
    Rows of the same content are told apart by a number.

    Raises:
        ConfigError: no such file, not of this form, no rows, or an id that was given twice.
    """
    if is_function(str(path)):
        return _made_tasks(str(path))
    path = Path(path)
    readers = {".json": _read_json, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise ConfigError(f"{path}: a dataset ends in one of {', '.join(readers)}")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    rows = list(readers[path.suffix](path))
    if not rows:
        raise ConfigError(f"{path}: there are no rows")
    return _as_tasks(rows)


def _made_tasks(place: str) -> list[Task]:
    made = load_object(place)()
    if not isinstance(made, list) or not made or not all(isinstance(task, Task) for task in made):
        raise ConfigError(f"{place}: it must give a list of tasks")
    return made


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


def _as_tasks(rows: Iterable[tuple[str, Any]]) -> list[Task]:
    places: dict[str, str] = {}
    copies: Counter[str] = Counter()
    tasks = []
    for place, row in rows:
        if not isinstance(row, dict):
            raise ConfigError(f"{place}: a row is an object of fields, this is {type(row).__name__}")
        fields = dict(row)
        given = fields.pop("id", None)
        if given is None:
            content = _digest(fields)
            copies[content] += 1
            name = content if copies[content] == 1 else f"{content}-{copies[content]}"
        else:
            name = str(given)
        if name in places:
            raise ConfigError(f"{place}: the id {name!r} was given already ({places[name]}): give each row its own")
        places[name] = place
        tasks.append(Task(name, fields))
    return tasks


def _digest(fields: Mapping[str, Any]) -> str:
    content = json.dumps(fields, sort_keys=True, default=str).encode()
    return blake2b(content, digest_size=6).hexdigest()


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
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: no JSON: {error}") from None
