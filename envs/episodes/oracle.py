"""Policies that need no model: scripts for the engine `scripted`, in the calls of the Hermes format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentfly.context import Task


@dataclass(frozen=True)
class Move:
    """One turn: a call, or the final answer when it names no tool."""

    tool: str | None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    answer: str = ""

    @property
    def text(self) -> str:
        """As a model of the Hermes format writes it."""
        if self.tool is None:
            return self.answer
        call = json.dumps({"name": self.tool, "arguments": dict(self.arguments)})
        return f"<tool_call>\n{call}\n</tool_call>"


class Script:
    """Plays the moves that a plan has for the task whose prompt it is shown.

    Args:
        tasks: all that may come up; each prompt stands in no other's.
        plan: the moves for a task.
    """

    def __init__(self, tasks: Sequence[Task], plan: Callable[[Task], Sequence[Move]]) -> None:
        self._tasks = tuple(tasks)
        self._plan = plan

    def __call__(self, prompt: str, turn: int, seed: int) -> str:
        task = next(task for task in self._tasks if task["prompt"] in prompt)
        moves = self._plan(task)
        return moves[turn].text if turn < len(moves) else "I am done."
