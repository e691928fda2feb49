"""What a provider of sandboxes is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from agentfly.errors import ConfigError
from agentfly.resources.sandbox.results import CommandResult, FileEntry, Piece, PythonResult, Status
from agentfly.resources.sandbox.settings import SandboxSettings

Capability = Literal["python", "isolation", "network", "mounts", "packages", "fork", "pause", "snapshot", "image"]
Limit = Literal["memory", "cpus", "processes", "disk", "files"]
LIMITS: tuple[Limit, ...] = get_args(Limit)


class SandboxEnded(Exception):
    """A running sandbox has ended by itself, or by what ran in it. Never leaves this package.

    Args:
        status: how a call that met it ended.
        reason: for people.
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class Check:
    """One thing that a provider needs, or could use.

    Attributes:
        found: what there is; None when it is missing.
        advice: what to do when it is missing, or what is lost.
        needed: without it no sandbox starts.
    """

    name: str
    found: str | None
    advice: str = ""
    needed: bool = True


@dataclass(frozen=True)
class Command:
    """A shell command; `folder` is relative to the workspace, `timeout` in seconds."""

    text: str
    timeout: float
    stdin: bytes
    env: Mapping[str, str]
    folder: str


class Runtime(Protocol):
    """A sandbox that runs. All methods but `kill` raise `SandboxEnded` when it runs no longer.

    A call that is cancelled is ended inside as well; the sandbox lives on.
    """

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as is known without asking it."""
        ...

    async def run(self, command: Command) -> CommandResult:
        """Run a shell command.

        Raises:
            OSError: it can't be started there.
        """
        ...

    async def run_python(self, code: str, timeout: float) -> PythonResult:
        """Run Python in the interpreter that lives on."""
        ...

    async def spawn(self, command: Command, *, keep_input: bool, hold: bool) -> int:
        """Start a command in the background; returns its number.

        Args:
            command: its `timeout` may be 0, which is no limit.
            keep_input: more input may come, by `give`.
            hold: when nobody fetches its output, it waits; otherwise the oldest is left out.

        Raises:
            OSError: it can't be started there, or there are too many.
        """
        ...

    async def collect(self, process: int, wait: float) -> Piece:
        """What it has written since; waits so many seconds for something new. Raises ProcessLookupError."""
        ...

    async def give(self, process: int, data: bytes, *, close: bool) -> None:
        """Give it more input, and perhaps no more after that.

        Raises:
            ProcessLookupError: there is no such process.
            OSError: it doesn't read it.
        """
        ...

    async def signal(self, process: int, number: int) -> None:
        """Send a signal to it and what it has started. Raises ProcessLookupError."""
        ...

    async def forget(self, process: int) -> None:
        """End it, and know it no longer. Raises ProcessLookupError."""
        ...

    async def processes(self) -> dict[int, bool]:
        """Those that are known, and whether they run."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file.

        Raises:
            OSError: it can't be written.
        """
        ...

    async def read(self, path: str, most: int) -> bytes:
        """The beginning of a file.

        Raises:
            OSError: it can't be read.
        """
        ...

    async def list(self, path: str) -> list[FileEntry]:
        """Entries of a folder.

        Raises:
            OSError: it can't be read.
        """
        ...

    async def ping(self) -> None:
        """Return when it has answered."""
        ...

    async def kill(self) -> None:
        """End everything inside; nothing of it is left when this returns. It may be called again."""
        ...


def check_limits(provider: str, settings: SandboxSettings, can: Collection[str]) -> None:
    """See that a provider can limit all that the settings require.

    Raises:
        ConfigError: it can't.
    """
    never = [name for name in settings.require if name not in can]
    if never:
        raise ConfigError(f"require: the provider {provider!r} can't limit {never[0]}")


class Provider(Protocol):
    """Makes sandboxes of one kind."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What its sandboxes can do beside running commands and keeping files."""
        ...

    def check(self, settings: SandboxSettings) -> None:
        """Look at the settings, before anything is started and perhaps on another machine.

        Raises:
            ConfigError: it can't do that.
        """
        ...

    async def start(self, settings: SandboxSettings) -> Runtime:
        """Start a sandbox, and return when it answers.

        Raises:
            ConfigError: this machine lacks something.
            StartFailed: it did not start.
        """
        ...

    def checks(self) -> list[Check]:
        """What it needs, and what this machine has of it."""
        ...
