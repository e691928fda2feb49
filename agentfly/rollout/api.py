"""`rollout` and `arollout`: run an agent on tasks, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentfly.agent import Agent
from agentfly.context import Task
from agentfly.models.spec import ModelSpec
from agentfly.rollout.opener import load_format
from agentfly.rollout.request import GroupRequest, RolloutOptions
from agentfly.rollout.runner import RolloutRunner
from agentfly.rollout.session import resource_session
from agentfly.rollout.trajectory import Trajectory


def as_tasks(rows: Iterable[Task | Mapping[str, Any]]) -> list[Task]:
    """Tasks of rows; a row that is no `Task` is named by its position."""
    return [row if isinstance(row, Task) else Task(str(index), dict(row)) for index, row in enumerate(rows)]


async def arollout(
    agent: Agent,
    tasks: Sequence[Task | Mapping[str, Any]],
    model: ModelSpec,
    *,
    group_size: int = 1,
    options: RolloutOptions | None = None,
    seed: int = 0,
) -> list[Trajectory]:
    """Run the agent `group_size` times on every task.

    Ray is joined or started as needed, the pools that the agent uses are gone at the end.

    Args:
        tasks: `Task`s, or plain mappings of fields.
        model: the engines to play with.
        options: concurrency, sampling, limits.
        seed: the same seed gives the same sampling seeds.

    Returns:
        Trajectories in the order of the tasks, the members of a group side by side.

    Raises:
        ConfigError: the agent asks for a field that a task doesn't have, or the model has no chat format; before
            anything is started.
    """
    rows = as_tasks(tasks)
    for row in rows:
        agent.check(row.fields)
    load_format(model, agent.tools)
    requests = [GroupRequest(f"{index}-{row.id}", row, group_size, seed) for index, row in enumerate(rows)]
    order = {request.id: index for index, request in enumerate(requests)}
    async with (
        resource_session() as manager,
        RolloutRunner(agent, model, options or RolloutOptions(), manager=manager) as runner,
    ):
        groups = [group async for group in runner.run(requests)]
    groups.sort(key=lambda group: order[group.id])
    return [trajectory for group in groups for trajectory in group]


def rollout(
    agent: Agent,
    tasks: Sequence[Task | Mapping[str, Any]],
    model: ModelSpec,
    *,
    group_size: int = 1,
    options: RolloutOptions | None = None,
    seed: int = 0,
) -> list[Trajectory]:
    """`arollout` for code that isn't asynchronous."""
    return asyncio.run(arollout(agent, tasks, model, group_size=group_size, options=options, seed=seed))
