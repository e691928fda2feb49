"""The controller's side of an interpreter: a process that can be spoken to, interrupted and killed."""

from __future__ import annotations

import _socket
import os

from agentfly.resources.sandbox.inside.cell import interpret
from agentfly.resources.sandbox.inside.frames import Frame, Inbox, encode
from agentfly.resources.sandbox.inside.limits import Limits, close_all, fresh_signals
from agentfly.resources.sandbox.inside.output import Output
from agentfly.resources.sandbox.inside.signals import signals


class Interpreter:
    """A forked interpreter.

    Args:
        limits: what it may use.
        limit: bytes kept of each output, of a value, and of an error.
        folders: of packages.
    """

    def __init__(self, limits: Limits, limit: int, folders: list[str]) -> None:
        ours, theirs = _socket.socketpair()
        pipes = [os.pipe() for _ in range(2)]
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                fresh_signals()
                signals.signal(signals.SIGINT, signals.SIG_IGN)
                signals.signal(signals.SIGPIPE, signals.SIG_IGN)
                for number, (_, writer) in enumerate(pipes, start=1):
                    os.dup2(writer, number)
                close_all(theirs.fileno())
                limits.apply()
                interpret(theirs.fileno(), limit, folders)
            finally:
                os._exit(1)
        theirs.close()
        for _, writer in pipes:
            os.close(writer)
        self.outputs = [Output(reader, limit) for reader, _ in pipes]
        self.channel = ours.detach()
        os.set_blocking(self.channel, False)
        self._inbox = Inbox(8 * limit + (1 << 16))

    def begin(self, code: bytes) -> bytes:
        """Forget old output, which is the background's; returns what is to be sent."""
        for output in self.outputs:
            output.clear()
        return encode({"code": code})

    def answer(self) -> Frame | None:
        """What it has answered, None when that hasn't come whole.

        Raises:
            ValueError: no answer, but something else.
            EOFError: it is gone.
        """
        try:
            data = os.read(self.channel, 1 << 18)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            raise EOFError
        frames = self._inbox.feed(data)
        return frames[0] if frames else None

    def signal(self, number: int) -> None:
        """Send a signal to it and to what it has started, as a terminal would."""
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass

    def close(self) -> None:
        """Close our ends."""
        os.close(self.channel)
        for output in self.outputs:
            os.close(output.descriptor)
