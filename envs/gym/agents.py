"""An agent and tasks for any Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentfly.envs.episodes import EpisodeHandle
from agentfly.envs.gym.presets import PRESETS
from agentfly.envs.gym.resource import GymEnvironment

from agentfly.agent import Agent, Tool, ToolResult, tool
from agentfly.context import Context, Task
from agentfly.resources.environment import EnvironmentSpec


def gym_agent(
    spec: EnvironmentSpec[GymEnvironment], *, max_turns: int = 50, system: str | None = None, max_output: int = 8192
) -> Agent:
    """An agent that acts in the environments of a pool; its reward is the episode's return.

    Args:
        spec: made by `gym_resource`.
        max_turns: completions at most.
        system: the system message.
        max_output: characters of an observation.
    """
    handle = EpisodeHandle(spec, ["seed"], ["options"])
    return Agent(
        tools=[_act_tool(handle, tuple(spec.args["actions"]), max_output), handle.look()],
        reward=handle.episode_return(),
        max_turns=max_turns,
        system=system,
    )


def gym_tasks(
    spec: EnvironmentSpec[GymEnvironment],
    count: int,
    *,
    seed: int = 0,
    instructions: str | None = None,
    options: Mapping[str, Any] | None = None,
    first_observation: bool = True,
) -> list[Task]:
    """Tasks with the fields `prompt`, `seed` and `options`.

    Args:
        spec: made by `gym_resource`.
        count: how many.
        seed: the tasks' own seeds count up from it.
        instructions: what the model is told; a preset has its own.
        options: for the environment's `reset`.
        first_observation: show it in the prompt; the environment must be installed here. Otherwise the model has the
            tool `look`.

    Raises:
        ConfigError: the environment can't be made here.
    """
    args = spec.args
    preset = PRESETS.get(args["env_id"])
    told = instructions or (preset.instructions if preset else f"Act in {args['env_id']} so that the reward is high.")
    told += " Act by the tool act."
    fields = [{"seed": seed + index, "options": dict(options) if options else None} for index in range(count)]
    seen: Sequence[str] = ["Call look to see where you are."] * count
    if first_observation:
        playing = GymEnvironment(**args)
        seen = [playing.open(row).observe() for row in fields]
        playing.close()
    return [
        Task(f"{args['env_id']}-{row['seed']}", {"prompt": f"{told}\n\n{first}", **row})
        for row, first in zip(fields, seen, strict=True)
    ]


def _act_tool(handle: EpisodeHandle[GymEnvironment], names: tuple[str, ...], max_output: int) -> Tool:
    """The tool `act`; actions that have names are an enumeration in its schema."""

    async def act(action: str, ctx: Context) -> ToolResult:
        """Take one action.

        Args:
            action: what to do.
        """
        return await handle.act(ctx, action)

    if names:
        act.__annotations__["action"] = Literal[names]
    return tool(claims=[handle.spec], max_output=max_output)(act)
