"""Trajectories on disk: JSON lines and Parquet, both without loss.

A line of JSON holds one trajectory with all its fields. A Parquet row holds the same: the task's
fields and the messages as JSON text, the four arrays of its segments as lists of lists.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from agentfly.errors import ConfigError
from agentfly.rollout import columns
from agentfly.rollout.records import encode, from_record
from agentfly.rollout.trajectory import Trajectory

_BAD_RECORD = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def write_jsonl(path: str | Path, trajectories: Iterable[Trajectory]) -> None:
    """Write a file of JSON lines; it is there whole or not at all.

    Raises:
        ConfigError: a trajectory holds what JSON can't say.
    """
    with _replacing(Path(path)) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for trajectory in trajectories:
            file.write(encode(trajectory) + "\n")


def read_jsonl(path: str | Path) -> Iterator[Trajectory]:
    """Trajectories of a file of JSON lines, read as they are asked for.

    Raises:
        ConfigError: the file or one of its lines is bad; naming file and line.
    """
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                yield _decode(line, f"{path}, line {number}")
    except OSError as error:
        raise ConfigError(f"can't read trajectories from {path}: {error.strerror}") from error


def write_parquet(path: str | Path, trajectories: Iterable[Trajectory], *, rows_per_group: int = 256) -> None:
    """Write a Parquet file; it is there whole or not at all. One row group at a time is held in memory.

    Raises:
        ConfigError: a trajectory holds what can't be stored.
    """
    with _replacing(Path(path)) as temporary:
        columns.write(temporary, trajectories, rows_per_group)


def read_parquet(path: str | Path) -> Iterator[Trajectory]:
    """Trajectories of a Parquet file, read as they are asked for.

    Raises:
        ConfigError: the file or one of its rows is bad; naming file and row.
    """
    for number, row in enumerate(columns.read(Path(path)), 1):
        try:
            trajectory = columns.from_row(row)
        except _BAD_RECORD as error:
            raise ConfigError(f"{path}, row {number} is no trajectory: {_why(error)}") from error
        yield trajectory


class TrajectoryWriter:
    """Appends trajectories to a file of JSON lines while a job runs. A context manager.

    Every line is handed to the operating system at once. A line that a killed process left
    unfinished is cut off when the file is opened again.

    Args:
        path: made when missing, with its folders.
        position: bytes of the file to keep; a job that resumes gives the position that its
            checkpoint noted, so that what it does again is not there twice. None keeps all.

    Raises:
        ConfigError: the file can't be written, or is shorter than `position`.
    """

    def __init__(self, path: str | Path, *, position: int | None = None) -> None:
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab+")
        except OSError as error:
            raise ConfigError(f"can't write trajectories to {path}: {error.strerror}") from error
        size = self._file.seek(0, os.SEEK_END)
        if position is not None and position > size:
            self._file.close()
            raise ConfigError(
                f"{path} has {size} bytes, fewer than the {position} of the checkpoint: it was changed since"
            )
        self._file.truncate(_whole_lines(self._path, size if position is None else position))
        self._file.seek(0, os.SEEK_END)

    @property
    def position(self) -> int:
        """Bytes written so far, those of earlier runs included."""
        return self._file.tell()

    def write(self, trajectory: Trajectory) -> None:
        """Append one.

        Raises:
            ConfigError: it holds what JSON can't say.
        """
        self._file.write(encode(trajectory).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _decode(line: bytes, place: str) -> Trajectory:
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise TypeError("it is no JSON object")
        return from_record(record)
    except (*_BAD_RECORD, RecursionError) as error:
        raise ConfigError(f"{place} is no trajectory: {_why(error)}") from error


def _why(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return str(error).replace("Trajectory.__init__() ", "").replace("\n", " ")


def _whole_lines(path: Path, size: int) -> int:
    """Bytes up to and with the last line break before `size`."""
    with path.open("rb") as file:
        end = size
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside the path that takes its place when the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"can't write trajectories to {path}: {error.strerror or error}") from error
