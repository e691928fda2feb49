"""Where metrics go."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console

from agentfly.errors import ConfigError

_SHOWN = ("reward", "eval/reward", "turns", "trainable", "kl", "clip_fraction", "seconds/rollouts", "seconds/update")


class Sink(Protocol):
    """One place for metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a step."""
        ...

    def close(self) -> None:
        """No more will come."""
        ...


class ConsoleSink:
    """A line for each step, with the metrics that people look at."""

    def __init__(self, steps: int) -> None:
        self._console = Console()
        self._steps = steps

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        shown = "  ".join(f"{name} {metrics[name]:.3g}" for name in _SHOWN if name in metrics)
        self._console.print(f"step {step}/{self._steps}  {shown}", highlight=False)

    def close(self) -> None:
        pass


class JsonlSink:
    """A JSON line for each report, in `metrics.jsonl`.

    A resumed run does again what came after its checkpoint, so its first report replaces what an earlier run told
    of that step and later ones.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "metrics.jsonl"
        self._file: TextIO | None = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._file is None:
            self._drop_from(step)
            self._file = self._path.open("a", encoding="utf-8")
        self._file.write(json.dumps({"step": step, "time": time.time(), **metrics}) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _drop_from(self, step: int) -> None:
        if not self._path.exists():
            return
        aside = self._path.with_suffix(".part")
        with self._path.open(encoding="utf-8") as told, aside.open("w", encoding="utf-8") as kept:
            kept.writelines(line for line in told if _is_before(line, step))
        aside.replace(self._path)


class TensorBoardSink:
    """TensorBoard event files, in `tensorboard/`; a resumed run replaces as in `JsonlSink`."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("loggers: tensorboard needs pip install 'agentfly-rl[native,tensorboard]'") from None
        self._open: Any = partial(SummaryWriter, str(folder / "tensorboard"))
        self._writer: Any = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer = self._open(purge_step=step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class MetricsLogger:
    """Sends metrics to several places. A context manager."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a step."""
        for sink in self._sinks:
            sink.log(step, metrics)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sink in self._sinks:
            sink.close()


def make_logger(names: Sequence[str], folder: Path, steps: int) -> MetricsLogger:
    """A logger to the places of a job.

    Raises:
        ConfigError: one of them needs a package that isn't there.
    """
    sinks: dict[str, Any] = {
        "console": lambda: ConsoleSink(steps),
        "jsonl": lambda: JsonlSink(folder),
        "tensorboard": lambda: TensorBoardSink(folder),
    }
    return MetricsLogger([sinks[name]() for name in names])


def _is_before(line: str, step: int) -> bool:
    try:
        return bool(json.loads(line)["step"] < step)
    except (ValueError, KeyError, TypeError):
        return False  # a run was killed while it wrote this
