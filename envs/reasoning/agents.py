"""An agent and tasks of reasoning-gym."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentfly.envs.reasoning.judge import ReasoningJudge, reasoning_judge
from agentfly.envs.rewards.answers import find_answer
from agentfly.envs.sandbox_tools.needs import NeedsFields

from agentfly.agent import Agent, Tool, reward
from agentfly.context import Context, Task
from agentfly.resources import ResourceSpec

_FIELDS = ("dataset", "seed", "index", "config")
SYSTEM = "Solve the problem. Think first, then give the answer alone as <answer>...</answer>."


def reasoning_agent(
    judge: ResourceSpec[ReasoningJudge] | None = None, *, tools: Sequence[Tool] = (), max_turns: int = 1
) -> Agent:
    """An agent that answers, at once or with tools; the reward is the generator's own.

    Args:
        judge: made by `reasoning_judge`.
        tools: that it may use, such as `calculate`.
        max_turns: completions at most.
    """
    pool = judge if judge is not None else reasoning_judge()

    async def reasoned(final_response: str, task: Task, ctx: Context) -> float:
        scorer = await ctx.acquire(pool, scope="global")
        return await scorer.score(find_answer(final_response), **{name: task[name] for name in _FIELDS})

    return Agent(
        tools=tools, reward=NeedsFields(reward(timeout=60)(reasoned), _FIELDS), system=SYSTEM, max_turns=max_turns
    )


def reasoning_tasks(
    dataset: str, count: int, *, seed: int = 0, first: int = 0, config: Mapping[str, Any] | None = None
) -> list[Task]:
    """Tasks with the fields `prompt`, `answer`, `dataset`, `seed`, `index` and `config`.

    Args:
        dataset: name of a generator, such as `leg_counting`.
        count: how many.
        seed: of the generator.
        first: number of the first, so that held-out tasks are others.
        config: of the generator.

    Raises:
        ConfigError: reasoning-gym isn't installed here, or has no such generator.
    """
    judge = ReasoningJudge()
    row = {"dataset": dataset, "seed": seed, "config": dict(config or {})}
    tasks = []
    for index in range(first, first + count):
        entry = judge.entry(dataset, seed, index, row["config"])  # type: ignore[arg-type]
        fields = {"prompt": entry["question"], "answer": entry["answer"], "index": index, **row}
        tasks.append(Task(f"{dataset}-{seed}-{index}", fields))
    return tasks
