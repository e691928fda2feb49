"""Checkpoints: a model folder in Hugging Face format with everything that training needs to go on exactly.

A checkpoint is written beside its place and renamed, so that a folder `step-00000010` is always whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agentfly.errors import AgentFlyError, ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = re.compile(r"step-(\d{8})")
_STATE_FILE = "trainer_state.json"
_TENSORS_FILE = "trainer_state.pt"
# Files of a model folder that are the tokenizer's; they are copied, so that they stay as they came.
_TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    "added_tokens.json",
)


@dataclass(frozen=True)
class Progress:
    """Where training stands.

    Attributes:
        step: steps done; the next task and the next seeds follow from it.
        version: of the policy's weights.
        tasks_drawn: how many of the endless shuffled sequence of tasks were used.
        trajectory_bytes: length of the file of trajectories.
    """

    step: int = 0
    version: int = 0
    tasks_drawn: int = 0
    trajectory_bytes: int = 0


def save(
    folder: Path,
    model: PreTrainedModel,
    progress: Progress,
    optimizer: dict[str, Any],
    *,
    tokenizer: Path | None = None,
    keep: int | None = None,
) -> Path:
    """Write a checkpoint.

    Args:
        folder: that holds the job's checkpoints; made when missing.
        model: saved in Hugging Face format.
        progress: its step names the checkpoint.
        optimizer: state of the optimiser.
        tokenizer: model folder whose tokenizer files come along.
        keep: newest checkpoints to keep; None keeps all.

    Returns:
        The checkpoint's folder.

    Raises:
        AgentFlyError: it can't be written.
    """
    place = folder / f"step-{progress.step:08d}"
    try:
        with _replacing(place) as temporary:
            model.save_pretrained(temporary)
            if tokenizer is not None:
                _copy_tokenizer(tokenizer, temporary)
            torch.save({"optimizer": optimizer, "rng": torch.get_rng_state()}, temporary / _TENSORS_FILE)
            (temporary / _STATE_FILE).write_text(json.dumps(asdict(progress), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise AgentFlyError(f"can't write a checkpoint to {place}: {error.strerror or error}") from error
    if keep is not None:
        for old in list_checkpoints(folder)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
    return place


def list_checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints of a job, oldest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and (path / _STATE_FILE).is_file()]
    return sorted(found, key=lambda path: path.name)


def newest(folder: Path) -> Path:
    """The newest complete checkpoint.

    Raises:
        ConfigError: there is none.
    """
    found = list_checkpoints(folder)
    if not found:
        raise ConfigError(f"nothing to resume: no checkpoint in {folder}; start the job without --resume")
    return found[-1]


def load_progress(checkpoint: Path) -> Progress:
    """Where training stood.

    Raises:
        ConfigError: the file can't be read or isn't ours.
    """
    try:
        progress = Progress(**json.loads((checkpoint / _STATE_FILE).read_text(encoding="utf-8")))
        for name in ("step", "version", "tasks_drawn", "trajectory_bytes"):
            if not isinstance(getattr(progress, name), int):
                raise TypeError(f"{name} is no whole number")
        return progress
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{checkpoint / _STATE_FILE} is no trainer state: {error}") from error


def load_optimizer(checkpoint: Path) -> dict[str, Any]:
    """State of the optimiser; torch's random state is set back too.

    Raises:
        ConfigError: the file can't be read.
    """
    try:
        state = torch.load(checkpoint / _TENSORS_FILE, map_location="cpu", weights_only=True)
        torch.set_rng_state(state["rng"])
        optimizer: dict[str, Any] = state["optimizer"]
    except Exception as error:  # torch raises what its unpickler raises; its text advises to read unsafely
        raise ConfigError(
            f"{checkpoint / _TENSORS_FILE} is no state of an optimiser ({type(error).__name__}): remove this "
            "checkpoint to go on from the one before it"
        ) from error
    return optimizer


def _copy_tokenizer(source: Path, target: Path) -> None:
    for pattern in _TOKENIZER_FILES:
        for path in source.glob(pattern):
            if path.is_file():
                shutil.copyfile(path, target / path.name)


@contextmanager
def _replacing(place: Path) -> Iterator[Path]:
    """A new folder that takes its place, flushed to disk, when the block ends well."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in temporary.rglob("*"):
            _flush(path)
        _flush(temporary)
        shutil.rmtree(place, ignore_errors=True)
        os.replace(temporary, place)
        _flush(place.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
