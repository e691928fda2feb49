"""The embedded provider."""

from __future__ import annotations

from collections.abc import Callable

from agentfly.errors import ConfigError, StartFailed
from agentfly.resources.sandbox.bubblewrap.launch import launch
from agentfly.resources.sandbox.bubblewrap.limiting import Cgroups, own_cgroups
from agentfly.resources.sandbox.bubblewrap.machine import bwrap_path, drop_to, python_for_inside
from agentfly.resources.sandbox.bubblewrap.seccomp import filter_program
from agentfly.resources.sandbox.provider import LIMITS, Capability, Check
from agentfly.resources.sandbox.remote import RemoteRuntime
from agentfly.resources.sandbox.settings import SandboxSettings

_RESERVED = ("/", "/dev", "/proc", "/sys", "/tmp", "/usr", "/workspace")
# Limits that hold everywhere: the file systems' size, and a count of processes in the sandbox's own user namespace.
_ALWAYS = frozenset({"disk", "files", "processes"})
_CONTROLLERS = {"memory": "memory", "cpus": "cpu"}


class BubblewrapProvider:
    """Namespaces, a filter of system calls, limits; made by bubblewrap, for root and for ordinary users."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Provider`."""
        return frozenset({"python", "isolation", "network", "mounts", "packages"})

    def check(self, settings: SandboxSettings) -> None:
        """See `Provider`."""
        if settings.options:
            raise ConfigError(
                f"provider_options: the provider 'bubblewrap' has no option {next(iter(settings.options))!r}"
            )
        for inside in settings.mounts:
            if not inside.startswith("/") or inside.rstrip("/") in ("", *_RESERVED):
                raise ConfigError(f"mounts: nothing can be shown at {inside!r}; give another absolute path")

    async def start(self, settings: SandboxSettings) -> RemoteRuntime:
        """See `Provider`."""
        cgroups = own_cgroups()
        missing = [name for name in settings.require if name not in held_limits()]
        if missing:
            raise StartFailed(f"the spec requires a limit of {missing[0]}, which can't hold here ({cgroups.reason})")
        return await launch(settings, cgroups)

    def checks(self) -> list[Check]:
        """See `Provider`."""
        cgroups = own_cgroups()
        held = ", ".join(name for name in LIMITS if name in held_limits())
        return [
            _tried("bubblewrap", bwrap_path),
            _tried("seccomp", lambda: f"{len(filter_program(False)) // 8} instructions"),
            _tried("Python in sandboxes", lambda: python_for_inside(None).executable),
            Check("user of sandboxes", "this user" if drop_to() is None else f"user {drop_to()}"),
            Check("limits of sandboxes", held),
            Check("cgroups", None if cgroups.reason else "memory, cpu, pids", _unlimited(cgroups), needed=False),
        ]


def _unlimited(cgroups: Cgroups) -> str:
    return f"without them memory is watched, and CPU time isn't limited ({cgroups.reason})"


def held_limits() -> frozenset[str]:
    """The limits that hold on this machine for all processes of a sandbox together."""
    controllers = own_cgroups().controllers
    return _ALWAYS | {limit for limit, controller in _CONTROLLERS.items() if controller in controllers}


def _tried(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, look())
    except ConfigError as error:
        return Check(name, None, str(error))
