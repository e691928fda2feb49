"""A tool's JSON schema as Gymnasium spaces, and elements of those as arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np
from agentfly.envs.gym.text_space import AnyText
from gymnasium import Space, spaces

from agentfly.agent import Tool

_LONGEST_TEXT = 1000
_INTEGERS = 2**31 - 1
_MOST_VALUES = 256


class Argument(Protocol):
    """One argument of a tool."""

    @property
    def space(self) -> Space[Any]: ...

    @property
    def values(self) -> Sequence[Any] | None:
        """All values; None when there are too many."""
        ...

    def read(self, element: Any) -> Any:
        """An element of the space as a JSON value."""
        ...


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: Sequence[Any]

    @property
    def space(self) -> Space[Any]:
        return spaces.Discrete(len(self.values))

    def read(self, element: Any) -> Any:
        return self.values[int(element)]


@dataclass(frozen=True)
class Number:
    """A whole or a real number between two bounds."""

    low: float
    high: float
    whole: bool
    values = None

    @property
    def space(self) -> Space[Any]:
        kind: Any = np.int64 if self.whole else np.float64
        return spaces.Box(kind(self.low), kind(self.high), (), kind)

    def read(self, element: Any) -> Any:
        value = np.asarray(element).item()
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class Text:
    """A text; of anything but a string, its JSON."""

    as_json: bool
    values = None

    @property
    def space(self) -> Space[Any]:
        return AnyText(_LONGEST_TEXT)

    def read(self, element: Any) -> Any:
        if not self.as_json:
            return str(element)
        try:
            return json.loads(element)
        except (ValueError, RecursionError):
            return str(element)  # the tool's own validation tells what is wrong


def arguments_of(tool: Tool) -> dict[str, Argument]:
    """The arguments of a tool, in the order of its schema."""
    return {name: _argument(schema) for name, schema in tool.parameters.get("properties", {}).items()}


def all_calls(tool: Tool) -> list[dict[str, Any]] | None:
    """Every way to call a tool; None where there are too many."""
    arguments = arguments_of(tool)
    choices = [argument.values for argument in arguments.values()]
    if any(values is None for values in choices):
        return None
    listed = [values for values in choices if values is not None]
    if np.prod([len(values) for values in listed], dtype=float) > _MOST_VALUES:
        return None
    return [dict(zip(arguments, values, strict=True)) for values in product(*listed)]


def _argument(schema: Mapping[str, Any]) -> Argument:
    for union in ("anyOf", "oneOf"):
        if union in schema:
            parts = [part for part in schema[union] if part.get("type") != "null"]
            return _argument(parts[0]) if len(parts) == 1 else Text(as_json=True)
    if "enum" in schema:
        return Choice(tuple(schema["enum"]))
    if "const" in schema:
        return Choice((schema["const"],))
    kind = schema.get("type")
    if kind == "boolean":
        return Choice((False, True))
    if kind == "integer":
        low, high = _bounds(schema)
        if high - low < _MOST_VALUES:
            return Choice(tuple(range(low, high + 1)))
        return Number(low, high, True)
    if kind == "number":
        return Number(float(schema.get("minimum", -1e9)), float(schema.get("maximum", 1e9)), False)
    return Text(as_json=kind != "string")


def _bounds(schema: Mapping[str, Any]) -> tuple[int, int]:
    """Least and largest whole number."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", -_INTEGERS - 2) + 1)
    high = schema.get("maximum", schema.get("exclusiveMaximum", _INTEGERS + 1) - 1)
    return int(low), int(high)
