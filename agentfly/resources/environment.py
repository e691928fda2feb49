"""Environments as resources: episodes that are begun, stepped and scored."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from agentfly.errors import ConfigError
from agentfly.resources.resource import Resource
from agentfly.resources.spec import ResourceSpec

O = TypeVar("O")  # noqa: E741 - an observation
A = TypeVar("A")
E = TypeVar("E", bound="Environment[Any, Any]")


@dataclass(frozen=True)
class Step(Generic[O]):
    """What an action brought about, in Gymnasium's terms.

    Attributes:
        reward: gained by this action.
        terminated: the episode has come to its own end.
        truncated: it was cut at a limit.
        info: whatever else there is to know.
    """

    observation: O
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing more can be done."""
        return self.terminated or self.truncated


@dataclass(frozen=True)
class Episode(Generic[O]):
    """How an episode stands.

    Attributes:
        observation: the latest.
        total: of the rewards.
        steps: actions taken.
        terminated, truncated: as in the last step.
    """

    observation: O
    total: float = 0.0
    steps: int = 0
    terminated: bool = False
    truncated: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more can be done."""
        return self.terminated or self.truncated


class Environment(Resource, Generic[O, A]):
    """One episode at a time. Observations and actions are texts, or any data that can be pickled.

    All methods may be plain functions instead, which run in threads. In a pool of an `EnvironmentSpec` a lease begins
    with an episode, of the seed and the options that its setup names; `begin` starts the next.
    """

    async def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> O:
        """Start an episode and return what there is to see: what Gymnasium calls reset.

        Args:
            seed: the same seed and options give the same episode; None is any.
            options: what else describes it, such as the fields of a task.
        """
        raise NotImplementedError(f"{type(self).__name__} has no begin()")

    async def step(self, action: A) -> Step[O]:
        """Act. An action that makes no sense is for the observation to tell, not for an exception."""
        raise NotImplementedError(f"{type(self).__name__} has no step()")

    async def end(self) -> None:
        """Give back what the episode holds."""

    async def setup(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """A lease begins with an episode."""
        await _run(self.begin, seed, options)

    async def reset(self) -> None:
        """The episode ends with its lease."""
        await _run(self.end)

    async def episode(self) -> Episode[O]:
        """How the episode stands. The pool keeps it."""
        raise ConfigError(f"{type(self).__name__}.episode() is there in pools of an EnvironmentSpec")


class EpisodeKeeper(Resource):
    """What the host of an `EnvironmentSpec` runs: an environment, and how its episode stands.

    Args:
        environment: the user's own.
        max_steps: actions after which an episode is cut; None is no limit.
    """

    def __init__(self, environment: Environment[Any, Any], max_steps: int | None) -> None:
        self._environment = environment
        self._max_steps = max_steps
        self._episode: Episode[Any] | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Start the environment."""
        await self._environment.start()

    async def stop(self) -> None:
        """End the episode and the environment."""
        try:
            await self._drop()
        finally:
            await self._environment.stop()

    async def healthy(self) -> bool:
        """Ask the environment."""
        return await self._environment.healthy()

    async def setup(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begin the lease's episode."""
        await self.begin(seed, options)

    async def reset(self) -> None:
        """End the lease's episode; an environment's own `reset` is run too."""
        await self._drop()
        if type(self._environment).reset is not Environment.reset:
            await self._environment.reset()

    async def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """See `Environment`."""
        await self._drop()
        async with self._turn:
            observation = await _run(self._environment.begin, seed, options)
            self._episode = Episode(observation)
        return observation

    async def step(self, action: Any) -> Step[Any]:
        """See `Environment`. After the episode's end nothing changes any more; actions come one after the other."""
        async with self._turn:
            known = self._episode
            if known is None:
                raise ConfigError(f"{type(self._environment).__name__} has no episode: acquire it, or begin() one")
            if known.over:
                return Step(known.observation, 0.0, known.terminated, known.truncated, {"over": True})
            step = cast(Step[Any], await _run(self._environment.step, action))
            steps = known.steps + 1
            if not step.terminated and self._max_steps is not None and steps >= self._max_steps:
                step = replace(step, truncated=True)
            total = known.total + step.reward
            self._episode = Episode(step.observation, total, steps, step.terminated, step.truncated)
            return step

    async def episode(self) -> Episode[Any]:
        """See `Environment`."""
        if self._episode is None:
            raise ConfigError(f"{type(self._environment).__name__} has no episode: acquire it, or begin() one")
        return self._episode

    async def _drop(self) -> None:
        async with self._turn:
            known, self._episode = self._episode, None
            if known is not None:
                await _run(self._environment.end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)


@dataclass(frozen=True, eq=False)
class EnvironmentSpec(ResourceSpec[E]):
    """A pool of environments: one for each slot, one episode for each lease.

    `resource` is an `Environment`. `ctx.acquire(spec, setup={"seed": 3, "options": {...}})` begins an episode.

    Attributes:
        max_steps: actions after which an episode is cut (`truncated`); None is no limit.

    Raises:
        ConfigError: a number is wrong, or the class is no environment.
    """

    max_steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"environment spec {self.name!r}"
        if not issubclass(self.resource, Environment):
            raise ConfigError(f"{where}: {self.resource.__name__} is no subclass of agentfly.Environment")
        if self.shared:
            raise ConfigError(f"{where}: an environment plays one episode at a time, it can't be shared")
        if self.max_steps is not None and self.max_steps < 1:
            raise ConfigError(f"{where}: max_steps is {self.max_steps}, it must be at least 1 (or None)")

    def make(self) -> Resource:
        """An environment, and the keeper of its episode."""
        return EpisodeKeeper(cast("Environment[Any, Any]", super().make()), self.max_steps)


async def _run(method: Callable[..., Any], *arguments: Any) -> Any:
    if inspect.iscoroutinefunction(method):
        return await method(*arguments)
    result = await asyncio.to_thread(method, *arguments)
    return await result if inspect.isawaitable(result) else result
