"""Entry point `verl.plugins`: verl loads it in every process, and with it the agent loop `agentfly` is there.

Its settings come from `+data.agentfly.agent=module:attribute` and the like; see `LoopSettings`.
verl hides what a plugin raises, so this one says itself why it can't be used.
"""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


def register() -> None:
    """Make the agent loop `agentfly` known to verl.

    Raises:
        ConfigError: verl is of a version that this was not tested with.
        ImportError: something is missing.
    """
    from agentfly.backends.verl.versions import check_versions

    check_versions()
    from agentfly.backends.verl.loop import AgentFlyPluginLoop
    from verl.experimental.agent_loop.agent_loop import register as register_loop

    register_loop("agentfly")(AgentFlyPluginLoop)


try:
    register()
except Exception as error:
    _log.error("AgentFly's agent loop can't be used in verl: %s: %s", type(error).__name__, error)
    raise
