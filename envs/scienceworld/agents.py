"""An agent and tasks for ScienceWorld."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from agentfly.envs.episodes import EpisodeHandle
from agentfly.envs.scienceworld.resource import ScienceWorld, ScienceWorldGame, make_simulator

from agentfly.agent import Agent
from agentfly.context import Task
from agentfly.resources.environment import EnvironmentSpec


def scienceworld_agent(spec: EnvironmentSpec[ScienceWorld], *, max_turns: int = 100) -> Agent:
    """An agent that experiments; the reward is the score, from 0 to 1."""
    handle = EpisodeHandle(spec, ["task", "variation"], ["simplification"])
    act = handle.tool("act", "Do something.", argument="action", meaning="such as: open door to kitchen")
    return Agent(tools=[act], reward=handle.episode_return(name="score"), max_turns=max_turns, max_invalid_calls=3)


def scienceworld_tasks(
    names: Sequence[str], variations: Sequence[int], *, simplification: str = "", solved: bool = False
) -> list[Task]:
    """Tasks with the fields `prompt`, `task`, `variation`, `simplification`, and `solution` where asked for.

    Args:
        names: of the simulator's tasks, such as `boil`.
        variations: numbers of the variations of each.
        simplification: such as `easy`.
        solved: with actions that reach the full score.

    Raises:
        ConfigError: the simulator can't be started here.
    """
    tasks = []
    with closing(make_simulator()) as simulator:
        for name in names:
            for variation in variations:
                game = ScienceWorldGame(simulator, name, variation, simplification, solved=solved)
                row = {"task": name, "variation": variation, "simplification": simplification}
                solution = {"solution": list(game.solution)} if solved else {}
                tasks.append(Task(f"{name}-{variation}", {"prompt": game.observe(), **row, **solution}))
    return tasks
