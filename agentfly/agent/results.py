"""What a tool returns, and how it becomes text that a model can read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any, Final

import numpy as np
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

NO_OUTPUT: Final = "(no output)"
_MOST_ARRAY_ITEMS = 10_000


@dataclasses.dataclass(frozen=True)
class ToolResult:
    """The observation of one call.

    Attributes:
        content: what the model reads. A tool may give anything that a plain return value may be.
        is_error: the call failed, by the model's fault or the tool's.
        metrics: numbers for the rollout's metrics.
        terminal: the rollout ends after this turn.
    """

    content: str = ""
    is_error: bool = False
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    terminal: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", plain_metrics(self.metrics))


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as plain floats.

    Raises:
        TypeError: one is no number.
    """
    return {str(name): plain_number(value, f"metric {name!r}") for name, value in metrics.items()}


def plain_number(value: Any, what: str) -> float:
    """A number, a boolean, or a numpy array of one, as a float.

    Raises:
        TypeError: it is something else.
        OverflowError: no float is that large.
    """
    if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
        value = value.item()
    if not isinstance(value, Real):
        raise TypeError(f"{what} must be a number, got {type(value).__name__}")
    return float(value)


def as_text(value: Any) -> str:
    """A tool's return value as text: strings as they are, data as JSON, anything else as Python shows it."""
    if isinstance(value, str):
        return str(value)
    if value is None:
        return NO_OUTPUT
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, np.ndarray) and value.size > _MOST_ARRAY_ITEMS:
        return str(value)  # numpy's own summary; listing millions of numbers helps nobody
    if _speaks_for_itself(value):
        return str(value)
    if isinstance(value, Iterator):
        return repr(value)  # reading it could go on for ever
    return _json(value)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters: head and tail, and between them a line that says how many are gone.

    Args:
        text: of any length; the cost is that of the limit.
        limit: at least 100, so that the line fits.
    """
    if len(text) <= limit:
        return encodable(text)
    notice = "\n[... {cut} of {total} characters cut: the limit is {limit} ...]\n"
    room = limit - len(notice.format(cut=len(text), total=len(text), limit=limit))
    tail = room // 3
    head = room - tail
    middle = notice.format(cut=len(text) - room, total=len(text), limit=limit)
    return encodable(text[:head] + middle + text[len(text) - tail :])


def encodable(text: str) -> str:
    """Text that UTF-8 can write: surrogates are joined in pairs, lone ones replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _speaks_for_itself(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and type(value).__str__ is not object.__str__


def _json(value: Any) -> str:
    try:
        plain = to_jsonable_python(value, fallback=_plain)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    except Exception:  # cycles, keys that are no strings, serialisers of the user's that raise
        return repr(value)


def _plain(value: Any) -> Any:
    """What pydantic can't serialise, as something that it can."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist() if value.size <= _MOST_ARRAY_ITEMS else str(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return repr(value)
