"""A context for tests that need no resources."""

from __future__ import annotations

from typing import Any

from agentfly.context import Context, Task


def context(**fields: Any) -> Context:
    """Of a rollout whose task has these fields."""
    return Context(rollout_id="g.0", group_id="g", task=Task("task-7", fields))
