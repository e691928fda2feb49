"""How the tools and the reward of an agent get at its episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from agentfly.envs.episodes.environment import GameEnvironment
from agentfly.envs.sandbox_tools.needs import NeedsFields

from agentfly.agent import Reward, RewardResult, Tool, ToolResult, reward, tool
from agentfly.agent.foreign import foreign_tool
from agentfly.context import Context
from agentfly.resources.environment import EnvironmentSpec, Step

E = TypeVar("E", bound=GameEnvironment)


class EpisodeHandle(Generic[E]):
    """One episode a rollout, in a pool, opened from the named fields of its task.

    Args:
        spec: of the pool.
        fields: of the task that the episode is made of.
        optional: fields that may be absent.
    """

    def __init__(self, spec: EnvironmentSpec[E], fields: Sequence[str], optional: Sequence[str] = ()) -> None:
        self.spec = spec
        self.fields = tuple(fields)
        self.optional = tuple(optional)

    async def of(self, ctx: Context) -> E:
        """The rollout's episode; the first who asks opens it."""
        row = {name: ctx.task[name] for name in self.fields}
        row.update({name: ctx.task[name] for name in self.optional if name in ctx.task})
        return await ctx.acquire(self.spec, setup={"options": row})

    async def act(self, ctx: Context, action: str) -> ToolResult:
        """Take one action; the rollout ends with the episode."""
        return as_result(await (await self.of(ctx)).step(action))

    def look(self, description: str = "See what there is to see, without doing anything.") -> Tool:
        """The tool `look`."""

        async def look(ctx: Context) -> str:
            return await (await self.of(ctx)).observe()

        return tool(description=description, claims=[self.spec])(look)

    def tool(
        self, name: str, description: str, *, argument: str, meaning: str, action: str = "{}", max_output: int = 8192
    ) -> Tool:
        """A tool of one text argument that takes an action.

        Args:
            name, description: as the model sees them.
            argument, meaning: name and description of the argument.
            action: the argument stands in its `{}`.
            max_output: characters of an observation.
        """

        async def act(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
            given = arguments.get(argument)
            if not isinstance(given, (str, int, float)) or len(arguments) > 1:
                return ToolResult(f"{name} takes one argument, {argument}: {meaning}", is_error=True)
            return await self.act(ctx, action.replace("{}", str(given)))

        schema = {
            "type": "object",
            "properties": {argument: {"type": "string", "description": meaning}},
            "required": [argument],
        }
        return foreign_tool(
            act,
            name=name,
            description=description,
            schema=schema,
            threaded=False,
            timeout=60.0,
            max_output=max_output,
            claims=[self.spec],
        )

    def episode_return(self, *, name: str = "episode_return", scale: float = 1.0) -> Reward:
        """The sum of the rewards of the episode's steps; 0 for a rollout that never acted.

        Args:
            name: of the reward.
            scale: that the sum is multiplied by.
        """

        async def score(ctx: Context) -> RewardResult:
            state = await (await self.of(ctx)).episode()
            return RewardResult(scale * state.total, {"steps": state.steps, "over": float(state.over)})

        return NeedsFields(reward(name=name)(score), self.fields)


def as_result(step: Step[str]) -> ToolResult:
    """A step as the observation of a tool."""
    metrics = {name: float(value) for name, value in step.info.items() if isinstance(value, (int, float))}
    return ToolResult(step.observation, metrics=metrics, terminal=step.over)
