"""Providers by their names."""

from __future__ import annotations

from importlib.metadata import entry_points

from agentfly.errors import ConfigError
from agentfly.resources.sandbox.bubblewrap.provider import BubblewrapProvider
from agentfly.resources.sandbox.provider import Provider
from agentfly.resources.sandbox.unisolated import ProcessProvider

ENTRY_POINTS = "agentfly.sandboxes"


def provider_named(name: str) -> Provider:
    """One of ours, or another package's, found by its entry point in the group `agentfly.sandboxes`.

    Raises:
        ConfigError: there is none of this name.
    """
    if name == "bubblewrap":
        return BubblewrapProvider()
    if name == "process":
        return ProcessProvider()
    others = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in others:
        there = ", ".join(["bubblewrap", "process", *sorted(others)])
        raise ConfigError(f"there is no sandbox provider {name!r}; there are: {there}")
    made: Provider = others[name].load()()
    return made
