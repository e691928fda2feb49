"""A shell command, from its start to its end."""

from __future__ import annotations

import errno
import os
import stat

from agentfly.resources.sandbox.inside.limits import Limits, fresh_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SHELLS = ("/bin/bash", "/bin/sh")


class Command:
    """A running command, at the head of a session of its own.

    Args:
        text: for the shell.
        stdin: what it may read.
        folder: where it runs.
        env: its variables.
        limits: what it may use.

    Attributes:
        readers: our ends of its output and its error output.
        keep_input: its input stays open when it has taken all of it.

    Raises:
        OSError: it can't be started there.
        ValueError: its text or a variable has a null byte.
    """

    def __init__(self, text: str, stdin: bytes, folder: str, env: Mapping[str, str], limits: Limits) -> None:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "no folder to run in")
        for part in (text, *env, *env.values()):
            if "\0" in part:
                raise ValueError("a null byte in a command or its variables")
        pipes = [os.pipe() for _ in range(3)]
        (stdin_reader, stdin_writer), *outputs = pipes
        inside = (stdin_reader, *(writer for _, writer in outputs))
        outside = (stdin_writer, *(reader for reader, _ in outputs))
        try:
            self.pid = os.fork()
        except OSError:
            for descriptor in (*inside, *outside):
                os.close(descriptor)
            raise
        if self.pid == 0:
            _become(text, folder, env, limits, inside)
        for descriptor in inside:
            os.close(descriptor)
        self.readers = [reader for reader, _ in outputs]
        self.stdin: int | None = stdin_writer
        os.set_blocking(stdin_writer, False)
        self.keep_input = False
        self._input = memoryview(stdin)

    @property
    def waiting_input(self) -> int:
        """Bytes of input that it hasn't taken."""
        return len(self._input)

    def add_input(self, data: bytes) -> None:
        """More of it; `feed` gives it."""
        self._input = memoryview(bytes(self._input) + data)

    def feed(self) -> None:
        """Give it more of its input, as much as it takes now; its end is closed after the last."""
        if self.stdin is None:
            return
        try:
            if self._input:
                self._input = self._input[os.write(self.stdin, self._input[: 1 << 16]) :]
        except BlockingIOError:
            return
        except OSError:
            self._input, self.keep_input = self._input[:0], False
        if not self._input and not self.keep_input:
            os.close(self.stdin)
            self.stdin = None

    def signal(self, number: int) -> None:
        """Send a signal to all of its process group."""
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass

    def close(self) -> None:
        """Close our end of its input; those of its outputs are the caller's."""
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None


def _become(text: str, folder: str, env: Mapping[str, str], limits: Limits, descriptors: tuple[int, ...]) -> None:
    try:
        os.setsid()
        fresh_signals()
        os.chdir(folder)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        limits.apply()
        for shell in _SHELLS:
            try:
                os.execve(shell, [shell, "-c", text], dict(env))
            except FileNotFoundError:
                continue
    except BaseException as error:
        try:
            os.write(2, f"the command could not be started: {error}\n".encode("utf-8", "backslashreplace"))
        except OSError:
            pass
    finally:
        os._exit(126)
