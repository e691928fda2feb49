"""Providers by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from agentfly.errors import ConfigError
from agentfly.resources.sandbox.bubblewrap.provider import BubblewrapProvider
from agentfly.resources.sandbox.docker.provider import DockerProvider
from agentfly.resources.sandbox.e2b.provider import E2bProvider
from agentfly.resources.sandbox.provider import LIMITS, Provider
from agentfly.resources.sandbox.sandlock.provider import SandlockProvider
from agentfly.resources.sandbox.settings import SandboxSettings
from agentfly.resources.sandbox.unisolated import ProcessProvider

ENTRY_POINTS = "agentfly.sandboxes"
_OURS: Mapping[str, Callable[[], Provider]] = {
    "bubblewrap": BubblewrapProvider,
    "docker": DockerProvider,
    "e2b": E2bProvider,
    "process": ProcessProvider,
    "sandlock": SandlockProvider,
}


def check_settings(settings: SandboxSettings) -> None:
    """Look at settings, before anything is started and perhaps on another machine.

    Raises:
        ConfigError: they are wrong, or nothing that their provider can do.
    """
    provider = provider_named(settings.provider)
    unknown = [name for name in settings.require if name not in LIMITS]
    if unknown:
        raise ConfigError(f"require: there is no limit {unknown[0]!r}; there are: {', '.join(LIMITS)}")
    for name, value in settings.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"env: {name!r} can't be an environment variable")
    if settings.image is not None and "image" not in provider.capabilities:
        raise ConfigError(f"image: the provider {settings.provider!r} has no images")
    provider.check(settings)


def provider_named(name: str) -> Provider:
    """One of ours, or another package's, found by its entry point in the group `agentfly.sandboxes`.

    Raises:
        ConfigError: there is none of this name.
    """
    if name in _OURS:
        return _OURS[name]()
    others = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in others:
        there = ", ".join([*_OURS, *sorted(others)])
        raise ConfigError(f"there is no sandbox provider {name!r}; there are: {there}")
    made: Provider = others[name].load()()
    return made
