"""Datasets: rows to tasks, and the place of whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import agentfly.agent as af
from agentfly.context import Task
from agentfly.errors import ConfigError
from agentfly.training.data import check_tasks, load_tasks

ROWS: list[dict[str, Any]] = [{"prompt": "1+1", "answer": 2}, {"prompt": "ünï", "answer": None, "id": "two"}]


def save(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"rows.{kind}"
    if kind == "json":
        path.write_text(json.dumps(rows))
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    else:
        parquet.write_table(pa.Table.from_pylist([{"id": None, **row} for row in rows]), path)
    return path


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet"])
def test_all_forms_hold_the_same(tmp_path: Path, kind: str) -> None:
    first, second = load_tasks(save(tmp_path, kind, ROWS))
    assert dict(first) == ROWS[0]
    assert dict(second) == {"prompt": "ünï", "answer": None}
    assert second.id == "two"


def test_an_id_stays_when_rows_move(tmp_path: Path) -> None:
    rows = [{"prompt": str(n)} for n in range(4)]
    ids = {task["prompt"]: task.id for task in load_tasks(save(tmp_path, "json", rows))}
    moved = {task["prompt"]: task.id for task in load_tasks(save(tmp_path, "jsonl", rows[::-1]))}
    assert ids == moved
    assert len(set(ids.values())) == 4


def test_rows_of_the_same_content_are_all_kept(tmp_path: Path) -> None:
    rows = [{"prompt": "a"}, {"prompt": "b"}, {"prompt": "a"}, {"prompt": "a"}]
    tasks = load_tasks(save(tmp_path, "json", rows))
    assert [task["prompt"] for task in tasks] == ["a", "b", "a", "a"]
    assert len({task.id for task in tasks}) == 4
    moved = load_tasks(save(tmp_path, "jsonl", rows[::-1]))
    assert {task.id for task in moved} == {task.id for task in tasks}


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', r"a\.jsonl:2: no JSON"),
        ("a.jsonl", '{"a": 1}\n[1]\n', r"a\.jsonl:2: a row is an object of fields, this is list"),
        ("a.jsonl", "\n\n", "there are no rows"),
        (
            "a.jsonl",
            '{"a": 1, "id": "x"}\n{"a": 2, "id": "x"}\n',
            r"a\.jsonl:2: the id 'x' was given already \(.*a\.jsonl:1\)",
        ),
        ("a.jsonl", "[" * 100_000, r"a\.jsonl:1: no JSON"),
        ("a.json", '{"a": 1}', "is a list of objects, this is dict"),
        ("a.json", "\xff\xfe", "no JSON"),
        ("a.parquet", "nope", "no Parquet"),
        ("a.csv", "a,b", r"ends in one of \.json, \.jsonl, \.parquet"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, name: str, content: str, told: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=told):
        load_tasks(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_tasks(tmp_path / "none.jsonl")


@af.reward
def exact(final_response: str, answer: str) -> float:
    return float(final_response == answer)


def test_the_first_row_without_a_needed_field_is_named() -> None:
    agent = af.Agent(tools=[], reward=exact)
    good = Task("a", {"prompt": "p", "answer": "1"})
    check_tasks(agent, [good, good], "rows.json")
    with pytest.raises(ConfigError, match=r"rows\.json, row 3 \(id 'b'\).*answer"):
        check_tasks(agent, [good, good, Task("b", {"prompt": "p"}), Task("c", {})], "rows.json")
