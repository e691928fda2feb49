"""A row of verl's dataset as a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentfly.context import Task
from agentfly.rollout.trajectory import as_plain

TASK_COLUMN = "agentfly_task"
EVALUATION_COLUMN = "agentfly_evaluation"
_VERLS_OWN = (
    "raw_prompt",
    "dummy_tensor",
    "uid",
    "session_id",
    "global_steps",
    "priority",
    "multi_modal_data",
    "agent_name",
    TASK_COLUMN,
    EVALUATION_COLUMN,
)


def task_of(row: Mapping[str, Any]) -> Task:
    """The task of a dataset row as verl hands it to an agent loop.

    Its fields are the row's columns, and beside them what stands in the columns `extra_info` and `reward_model`
    (verl's place for `ground_truth`); a column wins over a name inside of them. `prompt` is the row's messages.
    A row that AgentFly's own jobs have written carries its task whole.
    """
    written = row.get(TASK_COLUMN)
    if isinstance(written, str):
        document = json.loads(written)
        return Task(str(document["id"]), document["fields"])
    fields: dict[str, Any] = {}
    for column in ("reward_model", "extra_info"):
        inner = row.get(column)
        if isinstance(inner, Mapping):
            fields.update(as_plain(inner))
    fields.update({name: as_plain(value) for name, value in row.items() if name not in _VERLS_OWN})
    if "raw_prompt" in row:
        fields["prompt"] = as_plain(list(row["raw_prompt"]))
    return Task(str(as_plain(row.get("index", ""))), fields)


def as_column(task: Task) -> str:
    """A task as the text of the column that carries it whole."""
    return json.dumps({"id": task.id, "fields": as_plain(task.fields)}, ensure_ascii=False)
