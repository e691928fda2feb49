"""Makes sandboxes of Landlock and seccomp, as an ordinary process can."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentfly.errors import ConfigError
from agentfly.resources.sandbox.bubblewrap.command import variables
from agentfly.resources.sandbox.bubblewrap.limiting import own_cgroups
from agentfly.resources.sandbox.bubblewrap.machine import Python, drop_to, package_folders, python_for_inside
from agentfly.resources.sandbox.processes import GROUP_LIMITS, Launch, launch_tree
from agentfly.resources.sandbox.program import BOOT
from agentfly.resources.sandbox.provider import Capability, Check, check_limits
from agentfly.resources.sandbox.remote import RemoteRuntime
from agentfly.resources.sandbox.settings import SandboxSettings

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_LEAST_ABI = 6
# What programs expect there, and that is no secret of the host.
_READABLE = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/proc"),
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/localtime", "/etc/mime.types"),
)
_NETWORK = ("/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/hosts")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OWN_PROCESSES = 8
_OWN_MEMORY = 64 << 20
# The supervisor hands the socket on as standard input; the program takes it where nothing is put over it.
_BEGIN = """
import os, posix, sys
if len(sys.argv) > 2:
    os.setgroups([]); os.setresgid(*[int(sys.argv[1])] * 3); os.setresuid(*[int(sys.argv[1])] * 3)
path = sys.argv[-1]
sys.argv[1:] = [str(posix.dup(0)), str(posix.open(path, posix.O_RDONLY))]
posix.unlink(path)
"""


class SandlockProvider:
    """Code sees what Landlock shows it, and reaches no network; no namespaces are needed, nor root.

    Weaker than `bubblewrap`: the ids of the host's processes can be seen, though not their memory or environment, and
    the workspace lies on the host's disk, which isn't limited.
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Provider`."""
        return frozenset({"python", "isolation", "network", "packages"})

    def check(self, settings: SandboxSettings) -> None:
        """See `Provider`."""
        check_limits("sandlock", settings, GROUP_LIMITS)
        if settings.mounts:
            raise ConfigError("mounts: the provider 'sandlock' has no mounts")
        if settings.options:
            raise ConfigError(
                f"provider_options: the provider 'sandlock' has no option {next(iter(settings.options))!r}"
            )

    async def start(self, settings: SandboxSettings) -> RemoteRuntime:
        """See `Provider`."""
        if importlib.util.find_spec("sandlock") is None:
            raise ConfigError("the provider 'sandlock' needs it: pip install 'agentfly-rl[sandlock]'")
        python = python_for_inside(settings.python)
        packages = package_folders(python) if settings.packages else ()
        launch = Launch(
            command=lambda folder, host, program: _command(settings, python, packages, folder, host, program),
            env=lambda folder: {},
            compiled=python.ours,
            owner=drop_to(),
        )
        return await launch_tree(settings, own_cgroups(), launch)

    def checks(self) -> list[Check]:
        """See `Provider`."""
        if importlib.util.find_spec("sandlock") is None:
            return [Check("sandlock", None, "pip install 'agentfly-rl[sandlock]'")]
        import sandlock

        abi = sandlock.landlock_abi_version()
        found = f"ABI {abi}" if abi >= _LEAST_ABI else None
        return [Check("Landlock", found, f"needs ABI {_LEAST_ABI}, Linux 6.12; this kernel has {abi}")]


def _command(
    settings: SandboxSettings, python: Python, packages: Sequence[str], folder: str, host: int, program: int
) -> Sequence[str]:
    user = drop_to()
    inside = [python.executable, "-I", "-S", "-c", _BEGIN + BOOT, *([] if user is None else [str(user)])]
    policy = _policy(settings, python, packages, folder)
    return [sys.executable, "-I", _SUPERVISOR, str(host), str(program), json.dumps(policy), json.dumps(inside)]


def _policy(settings: SandboxSettings, python: Python, packages: Sequence[str], folder: str) -> Mapping[str, Any]:
    shown = [*_READABLE, *(_NETWORK if settings.network else ()), *python.folders, *packages]
    env = dict(variables(os.path.dirname(python.executable), settings.env, packages, settings.cpus))
    env.update({name: folder for name in ("HOME", "TMPDIR", "PWD") if name not in settings.env})
    everything = {"net_allow": ["tcp://*:*", "udp://*:*"], "net_allow_bind": ["*"]}
    return {
        "fs_readable": [path for path in shown if os.path.exists(path)],
        "fs_writable": [folder, *(path for path in _DEVICES if os.path.exists(path))],
        "cwd": folder,
        "max_memory": settings.memory + _OWN_MEMORY,
        "max_processes": settings.max_processes + _OWN_PROCESSES,
        "clean_env": True,
        "no_coredump": True,
        "env": env,
        **(everything if settings.network else {}),
    }
