"""Many episodes of an agent's tools at once, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np
from agentfly.envs.gym.actions import ActionKind
from agentfly.envs.gym.episode import ToolEpisode, Transition
from agentfly.envs.gym.grammar import ActionGrammar, hermes_turn
from agentfly.envs.gym.options import Setting, Tasks
from agentfly.envs.gym.stage import Pools, Stage
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate

from agentfly.agent import Agent, Reward, Tool

_SEEDS = 2**31


class ToolVectorEnv(VectorEnv[tuple[str, ...], Any, Any]):
    """`ToolEnv` times `num_envs`: thousands of episodes in one process, their resources in pools on Ray.

    All episodes of a step act side by side. An episode that has ended begins anew with the next step, whose action
    for it doesn't count (`AutoresetMode.NEXT_STEP`).

    Args:
        num_envs: episodes at a time.
        seed: each environment draws its tasks from a generator of its own, seeded as `reset(seed=…)` says.

    The other arguments are those of `ToolEnv`, with `pools` on Ray by default.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        agent_or_tools: Agent | str | Sequence[Tool],
        tasks: Tasks | str,
        *,
        num_envs: int = 1,
        reward: Reward | None = None,
        max_turns: int | None = None,
        actions: ActionKind = "text",
        grammar: ActionGrammar = hermes_turn,
        max_length: int = 8192,
        pools: Pools = "ray",
    ) -> None:
        self._setting = Setting(
            agent_or_tools,
            tasks,
            reward=reward,
            max_turns=max_turns,
            actions=actions,
            grammar=grammar,
            max_length=max_length,
        )
        self.num_envs = num_envs
        self.single_action_space = self._setting.actions.space
        self.single_observation_space = self._setting.observations
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._generators = [np.random.default_rng() for _ in range(num_envs)]
        self._over = [True] * num_envs
        self._stage = Stage(pools)
        self._episodes = self._stage.run(self._open(num_envs))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        seeds = [seed + index for index in range(self.num_envs)] if isinstance(seed, int) else seed
        for index, one in enumerate(seeds or ()):
            if one is not None:
                self._generators[index] = np.random.default_rng(one)
        opened = self._stage.run(_side_by_side([self._reset(index, options) for index in range(self.num_envs)]))
        return self._result(opened)[0::4]

    def step(self, actions: Any) -> tuple[tuple[str, ...], Any, Any, Any, dict[str, Any]]:
        each = list(iterate(self.action_space, actions))
        done = self._stage.run(_side_by_side([self._step(index, action) for index, action in enumerate(each)]))
        return self._result(done)

    def close_extras(self, **kwargs: Any) -> None:
        self._stage.close()

    async def _open(self, count: int) -> list[ToolEpisode]:
        return [await self._stage.episode(self._setting.agent, f"gym-{index}") for index in range(count)]

    async def _reset(self, index: int, options: dict[str, Any] | None) -> Transition:
        generator = self._generators[index]
        task = self._setting.choose(int(generator.integers(len(self._setting.tasks))), options)
        self._over[index] = False
        opening = await self._episodes[index].reset(task, int(generator.integers(_SEEDS)))
        return Transition(opening, info={"task": task.id})

    async def _step(self, index: int, action: Any) -> Transition:
        if self._over[index]:
            return await self._reset(index, None)
        episode = self._episodes[index]
        done = await episode.step(self._setting.actions.read(action, episode.turn))
        self._over[index] = done.terminated or done.truncated
        return done

    def _result(self, done: Sequence[Transition]) -> tuple[tuple[str, ...], Any, Any, Any, dict[str, Any]]:
        infos: dict[str, Any] = {}
        for index, each in enumerate(done):
            infos = self._add_info(infos, dict(each.info), index)
        return (
            tuple(self._setting.observations.fit(each.observation) for each in done),
            np.array([each.reward for each in done], dtype=np.float64),
            np.array([each.terminated for each in done], dtype=np.bool_),
            np.array([each.truncated for each in done], dtype=np.bool_),
            infos,
        )


async def _side_by_side(work: Sequence[Coroutine[Any, Any, Transition]]) -> list[Transition]:
    """All results; a failure is raised when all have ended, so that none is left half done."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if isinstance(result, Transition)]
