"""What verl tells of its steps, and what is remembered of them for a run that goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Told:
    """verl's metrics of one step."""

    step: int
    metrics: dict[str, float]


class MetricsFile:
    """Reads what verl's `file` logger appends, line by line as it comes.

    Args:
        path: of the file; it needn't be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new(self) -> Iterator[Told]:
        """The steps since the last time; a line that is being written waits for its end."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                document = json.loads(line)
                numbers = {name: value for name, value in document["data"].items() if isinstance(value, (int, float))}
                yield Told(int(document["step"]), {name: float(value) for name, value in numbers.items()})


def last_checkpoint(folder: Path) -> int:
    """The step of verl's newest whole checkpoint; 0 when there is none."""
    try:
        return int((folder / "latest_checkpointed_iteration.txt").read_text())
    except (OSError, ValueError):
        return 0


def model_folder(folder: Path, step: int) -> Path:
    """Where verl puts the model of a checkpoint in Hugging Face form."""
    return folder / f"global_step_{step}" / "actor" / "huggingface"


class Positions:
    """How long the file of trajectories was after each step, kept beside verl's files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def at(self, step: int) -> int:
        """Bytes after a step; 0 where nothing is known of it."""
        try:
            return int(json.loads(self._path.read_text()).get(str(step), 0))
        except (OSError, ValueError):
            return 0

    def note(self, step: int, position: int) -> None:
        """Remember a step, and forget those after it."""
        try:
            known = {name: value for name, value in json.loads(self._path.read_text()).items() if int(name) < step}
        except (OSError, ValueError):
            known = {}
        aside = self._path.with_suffix(".part")
        aside.write_text(json.dumps({**known, str(step): position}))
        aside.replace(self._path)
