"""What tools return, as text for a model."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentfly.agent.results import ToolResult, as_text, cut


class Model(BaseModel):
    a: int
    b: list[str] = []


@dataclasses.dataclass
class Point:
    x: int
    y: float


@dataclasses.dataclass
class Board:
    cells: str

    def __str__(self) -> str:
        return f"| {self.cells} |"


class Level(enum.Enum):
    LOW = 1


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


cycle: list[Any] = []
cycle.append(cycle)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "(no output)"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (bytearray(b"ab"), "ab"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, None], "é": "ü"}, '{"a": [1, null], "é": "ü"}'),
        ((1, 2), "[1, 2]"),
        (Model(a=1), '{"a": 1, "b": []}'),
        ([Model(a=1, b=["x"])], '[{"a": 1, "b": ["x"]}]'),
        (Point(1, 2.5), '{"x": 1, "y": 2.5}'),
        (Board("x o"), "| x o |"),
        (Level.LOW, "1"),
        (Path("a/b"), "a/b"),
        (datetime.date(2024, 5, 6), "2024-05-06"),
        (np.float32(0.5), "0.5"),
        (np.int64(3), "3"),
        (np.bool_(True), "true"),
        (np.arange(4).reshape(2, 2), "[[0, 1], [2, 3]]"),
        ({"n": np.int64(3), "v": np.zeros(2)}, '{"n": 3, "v": [0.0, 0.0]}'),
        (Opaque(), "<opaque>"),
        ({"o": Opaque()}, '{"o": "<opaque>"}'),
        (cycle, "[[...]]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_text_of(value: object, text: str) -> None:
    assert as_text(value) == text


def test_an_endless_iterator_is_not_read() -> None:
    import itertools

    assert as_text(itertools.count()) == "count(0)"


def test_a_large_array_is_summed_up() -> None:
    assert len(as_text(np.zeros(1_000_000))) < 100


def test_head_and_tail_are_kept_and_the_cut_is_told() -> None:
    text = "".join(f"{n:05d}" for n in range(2000))
    short = cut(text, 1000)
    assert len(short) <= 1000
    head, notice, tail = short.split("\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) > len(tail) > 250
    assert notice == f"[... {len(text) - len(head) - len(tail)} of 10000 characters cut: the limit is 1000 ...]"


@given(st.text(st.characters(), max_size=2000), st.integers(100, 1500))
def test_a_cut_text_fits_and_adds_up(text: str, limit: int) -> None:
    short = cut(text, limit)
    short.encode()
    assert len(short) <= limit
    if len(text) > limit:
        gone = re.search(r"\n\[\.\.\. (\d+) of (\d+) characters cut", short)
        assert gone is not None
        assert int(gone[2]) == len(text)


def test_a_huge_text_costs_no_more_than_its_limit() -> None:
    text = "é" * 10_000_000
    started = time.perf_counter()
    for _ in range(100):
        cut(text, 8192)
    assert time.perf_counter() - started < 1


def test_surrogates_are_joined_or_replaced() -> None:
    assert cut("a\ud83d\ude00b\ud83dc", 100) == "a\U0001f600b\ufffdc"


def test_metrics_of_a_result_are_plain_floats() -> None:
    result = ToolResult("x", metrics={"score": np.float64(0.5), "won": True})
    assert result.metrics == {"score": 0.5, "won": 1.0}
    assert all(type(value) is float for value in result.metrics.values())
    with pytest.raises(TypeError, match="'score'"):
        ToolResult("x", metrics={"score": "high"})  # type: ignore[dict-item]
