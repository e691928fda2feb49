"""What comes out of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "timeout", "killed"]


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended.

    Attributes:
        exit_code: None when it was killed.
        stdout, stderr: decoded as UTF-8, what isn't replaced; cut to the sandbox's output limit.
        status: `timeout`: it was killed at its limit. `killed`: by a signal.
        truncated: output was cut.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    status: Status = "ok"
    truncated: bool = False

    def __str__(self) -> str:
        parts = [self.stdout.rstrip("\n"), self.stderr.rstrip("\n")]
        if self.truncated:
            parts.append("[output truncated]")
        if self.status == "timeout":
            parts.append("[timed out]")
        elif self.exit_code != 0:
            parts.append("[killed]" if self.exit_code is None else f"[exit code {self.exit_code}]")
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True)
class PythonResult:
    """A piece of Python that has run in the sandbox's interpreter.

    Attributes:
        value: repr of the last expression; None when it was a statement or None.
        stdout, stderr: as in `CommandResult`.
        error: traceback, cut to the code's own frames; None when nothing was raised.
        status: `timeout`: interrupted at its limit. `killed`: the interpreter died.
        state_lost: variables are gone, a new interpreter has been started.
        truncated: output was cut.
    """

    value: str | None
    stdout: str
    stderr: str
    error: str | None = None
    status: Status = "ok"
    state_lost: bool = False
    truncated: bool = False

    def __str__(self) -> str:
        parts = [self.stdout.rstrip("\n"), self.stderr.rstrip("\n"), self.value or "", self.error or ""]
        if self.truncated:
            parts.append("[output truncated]")
        if self.status != "ok":
            parts.append("[timed out]" if self.status == "timeout" else "[the interpreter was killed]")
        if self.state_lost:
            parts.append("[variables were lost: a new interpreter has been started]")
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True)
class FileEntry:
    """One entry of a folder.

    Attributes:
        size: bytes; 0 for anything but a file.
    """

    name: str
    kind: Literal["file", "folder", "link", "other"]
    size: int
