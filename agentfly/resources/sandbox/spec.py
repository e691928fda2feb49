"""`SandboxSpec`: a pool of sandboxes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentfly.errors import ConfigError
from agentfly.resources.sandbox.sandbox import Sandbox, SandboxSettings
from agentfly.resources.spec import ResourceSpec

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, eq=False)
class SandboxSpec(ResourceSpec[Sandbox]):
    """Sandboxes: places where code that a model wrote runs, isolated, with state between calls.

    Give all arguments by name.

    Attributes:
        provider: what isolates; `bubblewrap` is the embedded one.
        memory: address space of each process inside, such as `512MiB`.
        disk: size of the writable workspace (kept in memory), and of each file in it.
        max_processes: processes and threads inside.
        max_output: bytes of output that a call keeps.
        timeout: seconds of a call that names no limit of its own.
        network: whether the host's network can be reached.
        env: environment variables inside; nothing of the host's is inherited.
        mounts: folders of the host that are visible inside, read-only: path inside -> path of the host.
    """

    resource: type[Sandbox] = field(init=False, default=Sandbox)
    args: Mapping[str, Any] = field(init=False)
    slots: int = 16
    provider: str = "bubblewrap"
    memory: str = "1GiB"
    disk: str = "64MiB"
    max_processes: int = 64
    max_output: int = 64 * 1024
    timeout: float = 30.0
    network: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"sandbox spec {self.name or 'Sandbox'!r}"
        if self.provider != "bubblewrap":
            raise ConfigError(f"{where}: unknown provider {self.provider!r}; there is: bubblewrap")
        for name in ("max_processes", "max_output", "timeout"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{where}: {name} is {getattr(self, name)}, it must be positive")
        settings = SandboxSettings(
            memory=parse_size(self.memory, f"{where}: memory"),
            disk=parse_size(self.disk, f"{where}: disk"),
            max_processes=self.max_processes,
            max_output=self.max_output,
            timeout=self.timeout,
            network=self.network,
            env=dict(self.env),
            mounts=dict(self.mounts),
        )
        object.__setattr__(self, "args", {"settings": settings})
        super().__post_init__()


def parse_size(text: str, where: str) -> int:
    """Bytes of a size such as `512MiB`.

    Raises:
        ConfigError: it is none; `where` begins the message.
    """
    match = re.fullmatch(r"(\d+) ?(B|KiB|MiB|GiB)", text)
    if match is None or int(match[1]) == 0:
        raise ConfigError(f"{where} is {text!r}: write a number and one of B, KiB, MiB, GiB, such as 512MiB")
    return int(match[1]) * _UNITS[match[2]]
