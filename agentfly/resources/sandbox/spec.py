"""`SandboxSpec`: a pool of sandboxes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentfly.errors import ConfigError
from agentfly.resources.sandbox.providers import check_settings
from agentfly.resources.sandbox.sandbox import Sandbox
from agentfly.resources.sandbox.settings import SandboxSettings
from agentfly.resources.spec import ResourceSpec

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, eq=False)
class SandboxSpec(ResourceSpec[Sandbox]):
    """Sandboxes: places where code that a model wrote runs, isolated, with state between calls.

    Give all arguments by name.

    Attributes:
        provider: what isolates. `bubblewrap` is the embedded one; see docs/sandboxes.md for `sandlock`, `docker`,
            `e2b`, and `process`, which isolates nothing; other packages may bring more.
        memory: of all processes together, such as `512MiB`; where the machine doesn't let us limit that (see
            `agentfly doctor`), it is watched instead.
        disk: size of the workspace and of `/tmp`, each kept in memory, and of each file in them.
        cpus: CPU time in each second, where the machine lets us limit that.
        max_processes: processes and threads.
        max_files: files and folders.
        max_output: bytes of each output that a call keeps; of more, the beginning and the end.
        timeout: seconds of a call that names no limit of its own.
        network: whether it shares the host's network, its local services and those of the cluster included: code
            that reaches them may do anything there. Without it there is a loopback device of its own.
        env: environment variables inside; nothing of the host's is inherited.
        mounts: files and folders of the host that can be read inside: path inside -> path of the host.
        python: path of the Python inside; None takes the one that AgentFly itself runs on, or the system's.
        packages: whether the packages that are installed beside AgentFly can be imported inside.
        require: limits without which no sandbox may start, of `memory`, `cpus`, `processes`, `disk` and `files`.
        image: what it is made from, with providers that have such a thing: an image of `docker`, a template of
            `e2b`. A lease may name another one: `setup={"image": ...}`.
        provider_options: settings of the provider's own.
    """

    resource: type[Sandbox] = field(init=False, default=Sandbox)
    args: Mapping[str, Any] = field(init=False)
    slots: int = 16
    provider: str = "bubblewrap"
    memory: str = "1GiB"
    disk: str = "64MiB"
    cpus: float = 1.0
    max_processes: int = 128
    max_files: int = 100_000
    max_output: int = 64 * 1024
    timeout: float = 30.0
    network: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    packages: bool = False
    require: Sequence[str] = ()
    image: str | None = None
    provider_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"sandbox spec {self.name or 'Sandbox'!r}"
        for name in ("cpus", "max_processes", "max_files", "max_output", "timeout"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{where}: {name} is {getattr(self, name)}, it must be positive")
        settings = SandboxSettings(
            provider=self.provider,
            memory=parse_size(self.memory, f"{where}: memory"),
            disk=parse_size(self.disk, f"{where}: disk"),
            cpus=self.cpus,
            max_processes=self.max_processes,
            max_files=self.max_files,
            max_output=self.max_output,
            timeout=self.timeout,
            network=self.network,
            env=dict(self.env),
            mounts=dict(self.mounts),
            python=self.python,
            packages=self.packages,
            require=tuple(self.require),
            image=self.image,
            options=dict(self.provider_options),
        )
        try:
            check_settings(settings)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
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
