"""The provider `process`: no isolation at all, for code that is trusted."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence

from agentfly.errors import ConfigError
from agentfly.resources.sandbox.bubblewrap.limiting import own_cgroups
from agentfly.resources.sandbox.processes import GROUP_LIMITS, Launch, launch_tree
from agentfly.resources.sandbox.program import BOOT
from agentfly.resources.sandbox.provider import Capability, Check, check_limits
from agentfly.resources.sandbox.remote import RemoteRuntime
from agentfly.resources.sandbox.settings import SandboxSettings


class ProcessProvider:
    """Runs code as this user, who can do whatever this user can. Only for code that is trusted.

    Time and output are limited, and the memory of each single process; of all together where cgroups let us. What is
    left running ends with the sandbox.
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Provider`."""
        return frozenset({"python", "network", "packages"})

    def check(self, settings: SandboxSettings) -> None:
        """See `Provider`."""
        check_limits("process", settings, GROUP_LIMITS)
        if settings.mounts:
            raise ConfigError("mounts: the provider 'process' sees the whole machine, nothing can be shown to it")
        if settings.python is not None:
            raise ConfigError("python: the provider 'process' runs the Python that runs it")
        if settings.options:
            raise ConfigError(
                f"provider_options: the provider 'process' has no option {next(iter(settings.options))!r}"
            )

    async def start(self, settings: SandboxSettings) -> RemoteRuntime:
        """See `Provider`."""
        warnings.warn("sandboxes of the provider 'process' isolate nothing: only for code you trust", stacklevel=2)
        return await launch_tree(settings, own_cgroups(), Launch(_command, lambda folder: _env(settings, folder)))

    def checks(self) -> list[Check]:
        """See `Provider`."""
        return [Check("isolation", None, "none: for trusted code only", needed=False)]


def _command(folder: str, host: int, program: int) -> Sequence[str]:
    return [sys.executable, "-c", BOOT, str(host), str(program)]


def _env(settings: SandboxSettings, folder: str) -> Mapping[str, str]:
    return {**os.environ, **settings.env, "HOME": folder, "TMPDIR": folder, "PWD": folder}
