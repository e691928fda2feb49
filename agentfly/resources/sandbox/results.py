"""What comes out of a sandbox. Its texts are for a model: `str(result)` is what a tool returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "timeout", "out_of_memory", "killed", "output_truncated"]


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended.

    Attributes:
        exit_code: None when it was killed.
        stdout, stderr: decoded as UTF-8, what isn't replaced. Of more than the sandbox's limit the middle is
            missing, and a line says so.
        status: `timeout`, `out_of_memory`, `killed`: why it did not end by itself. `output_truncated`: it ended by
            itself, or by writing without end, and not all of its output is here. Otherwise `ok`, whatever its exit
            code.
        note: what else there is to say, such as which signal killed it.
        files_lost: the whole sandbox had to be started anew, with the files of its setup.
        truncated: output is missing, whatever the status.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    status: Status = "ok"
    note: str = ""
    files_lost: bool = False
    truncated: bool = False

    def __str__(self) -> str:
        parts = [self.stdout.rstrip("\n"), self.stderr.rstrip("\n")]
        if self.exit_code is not None and self.exit_code != 0:
            parts.append(f"[exit code {self.exit_code}]")
        parts += _remarks(self.status, self.note)
        if self.files_lost:
            parts.append("[the sandbox was started anew: files that were written are lost]")
        return "\n".join(part for part in parts if part)

    @property
    def text(self) -> str:
        """The same as `str(result)`."""
        return str(self)


@dataclass(frozen=True)
class Piece:
    """What a background process has written since it was last asked.

    Attributes:
        stdout, stderr: decoded as UTF-8, what isn't replaced.
        running: it goes on.
        exit_code: None while it runs, and when it was killed.
        status, note: why it did not end by itself, as in `CommandResult`.
        left_out: bytes of output, so far, that nobody fetched in time.
    """

    stdout: str
    stderr: str
    running: bool
    exit_code: int | None = None
    status: Status = "ok"
    note: str = ""
    left_out: int = 0

    def __str__(self) -> str:
        parts = [self.stdout.rstrip("\n"), self.stderr.rstrip("\n")]
        if self.exit_code:
            parts.append(f"[exit code {self.exit_code}]")
        if self.left_out:
            parts.append(f"[{self.left_out} bytes left out]")
        parts += _remarks(self.status, self.note)
        return "\n".join(part for part in parts if part)

    @property
    def text(self) -> str:
        """The same as `str(piece)`."""
        return str(self)


@dataclass(frozen=True)
class PythonResult:
    """A piece of Python that has run in the sandbox's interpreter.

    Attributes:
        value: repr of the last expression; None when it was a statement or None.
        stdout, stderr: as in `CommandResult`; what child processes write is in them.
        error: traceback, from the code's own first frame on; None when nothing was raised.
        status: as in `CommandResult`; after a `timeout` or `out_of_memory` the variables may well be there still.
        note: what else there is to say.
        state_lost: variables are gone, there is a new interpreter.
        files_lost: the whole sandbox had to be started anew, with the files of its setup.
        truncated: output is missing, whatever the status.
    """

    value: str | None
    stdout: str
    stderr: str
    error: str | None = None
    status: Status = "ok"
    note: str = ""
    state_lost: bool = False
    files_lost: bool = False
    truncated: bool = False

    def __str__(self) -> str:
        parts = [self.stdout.rstrip("\n"), self.stderr.rstrip("\n"), self.value or "", self.error or ""]
        parts += _remarks(self.status, self.note)
        if self.files_lost:
            parts.append("[the sandbox was started anew: variables, and files that were written, are lost]")
        elif self.state_lost:
            parts.append("[variables are lost: there is a new interpreter]")
        return "\n".join(part for part in parts if part)

    @property
    def text(self) -> str:
        """The same as `str(result)`."""
        return str(self)


@dataclass(frozen=True)
class FileEntry:
    """One entry of a folder.

    Attributes:
        name: what isn't UTF-8 in it is shown as an escape.
        size: bytes; 0 for anything but a file.
    """

    name: str
    kind: Literal["file", "folder", "link", "other"]
    size: int


def _remarks(status: Status, note: str) -> list[str]:
    if note:
        return [f"[{note}]"]
    return [] if status in ("ok", "output_truncated") else [f"[{status.replace('_', ' ')}]"]
