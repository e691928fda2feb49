"""What the single and the vector environment share: whose tools, which tasks, which form of actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentfly.envs.gym.actions import ActionKind, Actions, make_actions
from agentfly.envs.gym.grammar import ActionGrammar, hermes_turn
from agentfly.envs.gym.text_space import AnyText

from agentfly.agent import Agent, Reward, Tool, load_agent, load_object
from agentfly.context import Task
from agentfly.errors import ConfigError
from agentfly.rollout.api import as_tasks

Tasks = Sequence[Task | Mapping[str, Any]]


class Setting:
    """Checked once, for any number of environments.

    Args:
        agent_or_tools: an agent, its `module:attribute`, or tools.
        tasks: at least one, or the `module:attribute` of a function without arguments that makes them.
        reward: in place of the agent's.
        max_turns: in place of the agent's.
        actions: see `make_actions`.
        grammar: how text actions are read.
        max_length: characters of an observation and of a text action.

    Raises:
        ConfigError: one of these is wrong, or a task lacks a field that is asked for.
    """

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
    ) -> None:
        agent = _agent(agent_or_tools)
        if reward is not None:
            agent = replace(agent, reward=reward)
        self.agent = agent if max_turns is None else replace(agent, max_turns=max_turns)
        rows = load_object(tasks)() if isinstance(tasks, str) else tasks
        self.tasks = as_tasks(rows)
        if not self.tasks:
            raise ConfigError("a ToolEnv needs at least one task")
        for task in self.tasks:
            self.agent.check(task.fields)
        self.actions: Actions = make_actions(actions, self.agent, grammar, max_length)
        self.observations = AnyText(max_length)

    def choose(self, draw: int, options: Mapping[str, Any] | None) -> Task:
        """A task by a number drawn, or the one whose position the option `task` names.

        Raises:
            ConfigError: there is no such task.
        """
        index = (options or {}).get("task", draw)
        if not isinstance(index, int) or not 0 <= index < len(self.tasks):
            raise ConfigError(f"reset(options={{'task': …}}) takes a number below {len(self.tasks)}, got {index!r:.80}")
        return self.tasks[index]


def _agent(given: Agent | str | Sequence[Tool]) -> Agent:
    if isinstance(given, str):
        return load_agent(given)
    return given if isinstance(given, Agent) else Agent(tools=given)
