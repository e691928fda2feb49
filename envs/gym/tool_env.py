"""An agent's tools, reward and tasks as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from agentfly.envs.gym.actions import ActionKind
from agentfly.envs.gym.grammar import ActionGrammar, hermes_turn
from agentfly.envs.gym.options import Setting, Tasks
from agentfly.envs.gym.stage import Pools, Stage

from agentfly.agent import Agent, Reward, Tool

_SEEDS = 2**31


class ToolEnv(gym.Env[str, Any]):
    """One conversation an episode: an action is a turn of the assistant, an observation what answers it.

    The loop is that of a rollout, so limits, errors and observations are those that a model gets. `terminated` when
    the assistant answers without a call, a terminal tool is called, or too many calls in a row were malformed;
    `truncated` at the limit of turns. The reward comes with the last step. `info` has the `task` at the start, at the
    end `finish_reason`, `turns` and `metrics`.

    Args:
        agent_or_tools: an agent, its `module:attribute`, or tools.
        tasks: rows, or the `module:attribute` of a function that makes them. `reset` draws one by the seed;
            `reset(options={"task": 3})` takes that one.
        reward: in place of the agent's.
        max_turns: in place of the agent's.
        actions: `text` (a tool call in the grammar; anything else is the final answer), `structured` (a dictionary of
            tool and arguments), `discrete` (a number for each call, where they can be listed).
        grammar: how text is read: Hermes' and Qwen's `<tool_call>`, or `grammar_of` a model's chat format.
        max_length: characters of an observation, which is cut, and of a text action.
        pools: where resources live: in this `process`, or on `ray`.
        render_mode: `ansi` for the conversation as text.

    Raises:
        ConfigError: something doesn't fit together.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  gymnasium's own form

    def __init__(
        self,
        agent_or_tools: Agent | str | Sequence[Tool],
        tasks: Tasks | str,
        *,
        reward: Reward | None = None,
        max_turns: int | None = None,
        actions: ActionKind = "text",
        grammar: ActionGrammar = hermes_turn,
        max_length: int = 8192,
        pools: Pools = "process",
        render_mode: str | None = None,
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
        self.action_space = self._setting.actions.space
        self.observation_space = self._setting.observations
        self.render_mode = render_mode
        self._stage = Stage(pools)
        self._episode = self._stage.run(self._stage.episode(self._setting.agent, "gym"))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        draw = int(self.np_random.integers(len(self._setting.tasks)))
        task = self._setting.choose(draw, options)
        opening = self._stage.run(self._episode.reset(task, int(self.np_random.integers(_SEEDS))))
        return self._setting.observations.fit(opening), {"task": task.id}

    def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        turn = self._setting.actions.read(action, self._episode.turn)
        done = self._stage.run(self._episode.step(turn))
        observation = self._setting.observations.fit(done.observation)
        return observation, done.reward, done.terminated, done.truncated, dict(done.info)

    def render(self) -> str | None:
        if self.render_mode != "ansi":
            return None
        return "\n".join(f"[{message['role']}] {_shown(message)}" for message in self._episode.messages)

    def close(self) -> None:
        self._stage.close()


def _shown(message: Any) -> str:
    calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls", ())]
    return " ".join([str(message["content"]), *calls]).strip()
