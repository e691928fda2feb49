"""An agent that works problems out with a calculator."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly.envs.calculator.arithmetic import BadExpression, evaluate, show
from agentfly.envs.episodes import Move
from agentfly.envs.rewards import numeric

from agentfly.agent import Agent, ToolResult, tool
from agentfly.context import Task

SYSTEM = "Solve the problem. Work out what you need with the calculator, then answer with the number alone."


@tool(timeout=5, max_output=400)
def calculate(expression: str) -> str | ToolResult:
    """Work out an expression exactly.

    Args:
        expression: numbers, brackets and + - * / // % **, such as (12+3)*4.
    """
    try:
        return show(evaluate(expression))
    except BadExpression as error:
        return ToolResult(str(error), is_error=True)


agent = Agent(tools=[calculate], reward=numeric(), system=SYSTEM, max_turns=6, max_invalid_calls=3)


def oracle(task: Task) -> Sequence[Move]:
    """Moves that solve a task of `make_tasks`."""
    return [Move("calculate", {"expression": task["expression"]}), Move(None, answer=task["answer"])]
