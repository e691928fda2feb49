"""Entry point `verl.plugins`: verl loads it in every process, and with it the agent loop `agentfly` is there.

Its settings come from `+data.agentfly.agent=module:attribute` and the like; see `LoopSettings`.
verl hides what a plugin raises, so this one says itself why it can't be used.
"""

from __future__ import annotations

import logging
from typing import Any

from agentfly.backends.verl.versions import check_versions

_log = logging.getLogger(__name__)


def plugin_loop(*args: Any, **given: Any) -> Any:
    """The agent loop of a rollout; what it needs is imported by the first one, not with verl."""
    from agentfly.backends.verl.loop import AgentFlyPluginLoop

    return AgentFlyPluginLoop(*args, **given)


def register() -> None:
    """Make the agent loop `agentfly` known to verl.

    Raises:
        ConfigError: verl is of a version that this was not tested with.
        ImportError: something is missing.
    """
    check_versions()
    from verl.experimental.agent_loop.agent_loop import register as register_loop

    register_loop("agentfly")(plugin_loop)


try:
    register()
except Exception as error:
    _log.error("AgentFly's agent loop can't be used in verl: %s: %s", type(error).__name__, error)
    raise
