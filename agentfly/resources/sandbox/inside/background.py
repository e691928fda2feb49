"""Commands that go on while others run, whose output is fetched piece by piece."""

from __future__ import annotations

import errno
import os

from agentfly.resources.sandbox.inside.command import Command
from agentfly.resources.sandbox.inside.frames import Frame, Value
from agentfly.resources.sandbox.inside.loop import WRITE, Loop
from agentfly.resources.sandbox.inside.output import Pieces
from agentfly.resources.sandbox.inside.signals import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Answer = Callable[[dict[str, Value]], None]

# Also those that have ended and haven't been forgotten.
_MOST = 64
_MOST_INPUT = 1 << 20


class Process:
    """One of them.

    Args:
        loop: where it waits.
        command: has just been started.
        outputs: the pieces that it writes.
        timeout: seconds; 0 is no limit.
        keep_input: more input may come.
    """

    def __init__(self, loop: Loop, command: Command, outputs: list[Pieces], timeout: float, keep_input: bool) -> None:
        self.outputs = outputs
        self.ended = False
        self._loop = loop
        self._command = command
        self._status, self._note = "ok", ""
        self._exit_code: int | None = None
        self._answer: Answer | None = None
        command.keep_input = keep_input
        if timeout > 0:
            loop.later(self, timeout, lambda: self.end("timeout", f"timed out after {timeout:g} s"))
        for output in outputs:
            loop.watch(output.descriptor, self._reader(output))
        self._feed()

    def collect(self, wait: float, answer: Answer) -> None:
        """Answer with what is new, as soon as there is something, it has ended, or the time is over."""
        self.drop_answer()
        self._answer = answer
        if wait <= 0 or self.ended or any(output.waiting for output in self.outputs):
            self._tell()
        else:
            self._loop.later((self, "collect"), wait, self._tell)

    def drop_answer(self) -> None:
        """Who waits for news gets what there is, which is nothing."""
        if self._answer is not None:
            self._tell()

    def give(self, data: bytes, close: bool) -> None:
        """More input.

        Raises:
            OSError: it has ended or its input is closed, or it doesn't read what it has got.
        """
        if self.ended or self._command.stdin is None:
            raise BrokenPipeError(errno.EPIPE, "it reads no more input")
        if self._command.waiting_input + len(data) > _MOST_INPUT:
            raise BlockingIOError(errno.EAGAIN, "it doesn't read what it has been given")
        self._command.add_input(data)
        self._command.keep_input = not close
        self._feed()

    def signal(self, number: int) -> None:
        """To all of its process group."""
        if not self.ended:
            self._command.signal(number)

    def blame(self, status: str, note: str) -> None:
        """Note why it is being ended."""
        if self._status == "ok":
            self._status, self._note = status, note

    def end(self, status: str, note: str) -> None:
        """Kill it."""
        self.blame(status, note)
        self._command.signal(signals.SIGKILL)

    def exited(self, status: int) -> None:
        """Its shell has ended, with a status of `wait`."""
        self.ended = True
        self._loop.never(self)
        if self._command.stdin is not None:
            self._loop.forget(self._command.stdin)
        self._command.close()
        if os.WIFSIGNALED(status):
            self.blame("killed", f"killed by signal {os.WTERMSIG(status)}")
        else:
            self._exit_code = os.WEXITSTATUS(status)
        for output in self.outputs:
            output.drain()
        if self._answer is not None:
            self._tell()

    def leave(self) -> None:
        """Watch it no longer; its outputs are somebody else's now."""
        self.drop_answer()
        self._loop.never(self)
        for output in self.outputs:
            self._loop.forget(output.descriptor)

    def _tell(self) -> None:
        self._loop.never((self, "collect"))
        answer, self._answer = self._answer, None
        told: dict[str, Value] = {"status": self._status, "note": self._note, "running": int(not self.ended)}
        if self._exit_code is not None:
            told["exit_code"] = self._exit_code
        told["left_out"] = sum(output.left_out for output in self.outputs)
        for name, output in zip(("stdout", "stderr"), self.outputs, strict=True):
            told[name] = output.take(last=self.ended)
            if output.open:
                self._loop.watch(output.descriptor, self._reader(output))
        if answer is not None:
            answer(told)

    def _reader(self, output: Pieces) -> Callable[[], None]:
        def read() -> None:
            output.read()
            if not output.open or output.full:
                self._loop.forget(output.descriptor)
            if self._answer is not None and output.waiting:
                self._tell()

        return read

    def _feed(self) -> None:
        stdin = self._command.stdin
        if stdin is None:
            return
        self._command.feed()
        if self._command.stdin is None or not self._command.waiting_input:
            self._loop.forget(stdin)
        else:
            self._loop.watch(stdin, self._feed, WRITE)


class Processes:
    """All of them, by number."""

    def __init__(self) -> None:
        self._numbers = 0
        self._known: dict[int, Process] = {}

    def room(self) -> None:
        """Raises OSError when there are too many."""
        if len(self._known) >= _MOST:
            raise BlockingIOError(errno.EAGAIN, f"there are {_MOST} background processes; forget some")

    def add(self, process: Process) -> int:
        """Take it in; returns its number."""
        self._numbers += 1
        self._known[self._numbers] = process
        return self._numbers

    def named(self, request: Frame) -> Process:
        """The one that a request is about.

        Raises:
            ProcessLookupError: there is none.
        """
        process = self._known.get(int(request["process"]))
        if process is None:
            raise ProcessLookupError(errno.ESRCH, "there is no such background process")
        return process

    def running(self) -> list[Process]:
        """Those that haven't ended."""
        return [process for process in self._known.values() if not process.ended]

    def forget(self, request: Frame) -> Process:
        """Take it out; raises as `named`."""
        process = self.named(request)
        del self._known[int(request["process"])]
        return process

    def list(self) -> dict[str, Value]:
        """Number and whether it runs, of each."""
        return {"processes": " ".join(f"{number}:{int(not known.ended)}" for number, known in self._known.items())}
