"""The agent that plays in verl's pipeline: a user's own, or one made of verl's tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentfly.backends.verl.settings import LoopSettings
from agentfly.backends.verl.tools import convert
from ray import cloudpickle

from agentfly.agent import Agent
from agentfly.agent.loading import load_agent
from agentfly.errors import ConfigError

PICKLED = "pickle:"
_MANY_TURNS = 1000


def agent_of(settings: LoopSettings, folder: Path | None, tools: Sequence[Any], multi_turn: Any) -> Agent:
    """The agent of the settings.

    Args:
        settings: of the loop.
        folder: that file paths are relative to; the working directory when None.
        tools: of verl, for settings without an agent.
        multi_turn: verl's `rollout.multi_turn`, whose limits hold for an agent of its tools.

    Raises:
        ConfigError: there is none, or it can't be loaded.
    """
    if settings.agent is None:
        return Agent(
            tools=convert(tools, max_output=int(multi_turn.max_tool_response_length)),
            max_turns=multi_turn.max_assistant_turns or _MANY_TURNS,
            max_parallel_calls=multi_turn.max_parallel_calls or 1,
        )
    if settings.agent.startswith(PICKLED):
        found = cloudpickle.loads(Path(settings.agent.removeprefix(PICKLED)).read_bytes())
        if not isinstance(found, Agent):
            raise ConfigError(f"{settings.agent} holds no agent, but {type(found).__name__}")
        return found
    return load_agent(settings.agent, folder=folder)


def check_agent(agent: Agent, settings: LoopSettings) -> None:
    """Refuse an agent whose rollouts nobody would score.

    Raises:
        ConfigError: it has no reward, and the settings don't leave it to verl.
    """
    if agent.reward is None and settings.agent is not None and settings.reward == "agent":
        raise ConfigError(
            f"agent {settings.agent!r} has no reward: give it one, or write `reward: verl` in the agent loop's entry "
            "to have it computed by verl's reward workers"
        )
