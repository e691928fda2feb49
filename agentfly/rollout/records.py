"""Trajectories as plain JSON data and back, without loss."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from agentfly.context.task import Task
from agentfly.errors import ConfigError
from agentfly.rollout.trajectory import FINISH_REASONS, Segment, Timing, Trajectory, as_plain

Record = dict[str, Any]

_SEGMENT_TYPES: Mapping[str, type[np.generic]] = {
    "ids": np.int32,
    "mask": np.bool_,
    "logprobs": np.float32,
    "versions": np.int32,
}


def to_json(value: Any) -> str:
    """JSON on one line; NaN and infinities as Python's `json` writes and reads them.

    Raises:
        TypeError, ValueError: the value isn't plain data.
    """
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair can be escaped, not encoded
        return json.dumps(value, ensure_ascii=True)
    return text


def to_record(trajectory: Trajectory) -> Record:
    """Every field of a trajectory as plain data; arrays become lists.

    A float32 is a float that says exactly the same number, so it comes back bit for bit.
    """
    names = [field.name for field in fields(Trajectory) if field.name not in ("task", "segments", "timing")]
    record: Record = {name: as_plain(getattr(trajectory, name)) for name in names}
    record["task"] = {"id": trajectory.task.id, "fields": as_plain(trajectory.task.fields)}
    record["segments"] = [
        {name: getattr(segment, name).tolist() for name in _SEGMENT_TYPES} for segment in trajectory.segments
    ]
    record["timing"] = asdict(trajectory.timing)
    return record


def from_record(record: Mapping[str, Any]) -> Trajectory:
    """A trajectory of its record; unknown fields are refused.

    Raises:
        KeyError, TypeError, ValueError: it is no record of a trajectory.
    """
    values = dict(record)
    values["task"] = Task(_text(values["task"]["id"]), dict(values["task"]["fields"]))
    values["segments"] = [segment_of(segment) for segment in values["segments"]]
    values["timing"] = Timing(**values["timing"])
    trajectory = Trajectory(**values)
    if trajectory.finish_reason not in FINISH_REASONS:
        raise ValueError(f"finish_reason {trajectory.finish_reason!r} is unknown")
    for name in ("rollout_id", "group_id"):
        _text(values[name])
    for name in ("messages", "metrics"):
        if not isinstance(values[name], list if name == "messages" else dict):
            raise TypeError(f"{name} is of the wrong type")
    return trajectory


def segment_of(arrays: Mapping[str, Sequence[Any]]) -> Segment:
    """A segment of its four lists."""
    segment = Segment(**{name: np.asarray(arrays[name], dtype) for name, dtype in _SEGMENT_TYPES.items()})
    if segment.ids.ndim != 1:
        raise ValueError(f"a segment's arrays are lists of numbers, not of shape {segment.ids.shape}")
    return segment


def encode(trajectory: Trajectory) -> str:
    """The record as one line of JSON.

    Raises:
        ConfigError: a task's field, a message or a metric isn't plain data; naming the trajectory.
    """
    try:
        return to_json(to_record(trajectory))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"trajectory {trajectory.rollout_id} can't be stored: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
