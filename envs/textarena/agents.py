"""An agent and tasks for a game of TextArena."""

from __future__ import annotations

from agentfly.envs.episodes import EpisodeHandle
from agentfly.envs.textarena.resource import TextArenaEnvironment

from agentfly.agent import Agent
from agentfly.context import Task
from agentfly.resources.environment import EnvironmentSpec


def textarena_agent(spec: EnvironmentSpec[TextArenaEnvironment], *, max_turns: int = 50) -> Agent:
    """An agent that plays the games of a pool."""
    handle = EpisodeHandle(spec, ["seed"])
    play = handle.tool("play", "Make a move in the game.", argument="action", meaning="as the game asks for it")
    return Agent(
        tools=[play], reward=handle.episode_return(name="game_reward"), max_turns=max_turns, max_invalid_calls=3
    )


def textarena_tasks(spec: EnvironmentSpec[TextArenaEnvironment], count: int, *, seed: int = 0) -> list[Task]:
    """Tasks with the fields `prompt` (what the game shows first) and `seed`, counting up.

    Raises:
        ConfigError: TextArena isn't installed here, or can't make the game.
    """
    playing = TextArenaEnvironment(**spec.args)
    tasks = []
    for number in range(seed, seed + count):
        prompt = f"{playing.open({'seed': number}).observe()}\nMove by the tool play."
        tasks.append(Task(f"{spec.args['env_id']}-{number}", {"prompt": prompt, "seed": number}))
    return tasks
