"""Calls of the host that take a while: a command, a piece of Python."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from agentfly.resources.sandbox.inside.command import Command
from agentfly.resources.sandbox.inside.frames import Frame, Value
from agentfly.resources.sandbox.inside.interpreter import Interpreter
from agentfly.resources.sandbox.inside.loop import WRITE, Loop
from agentfly.resources.sandbox.inside.output import ENDLESS, Output
from agentfly.resources.sandbox.inside.signals import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds that code has to heed an interrupt.
INTERRUPT_GRACE = 1.0


class Job(ABC):
    """What the two have in common: outputs, a time limit, why it was ended.

    Args:
        loop: where it waits.
        outputs: what it writes.
        timeout: seconds.
    """

    def __init__(self, loop: Loop, outputs: list[Output], timeout: float) -> None:
        self.loop = loop
        self.outputs = outputs
        self.status = "ok"
        self.note = ""
        loop.later(self, timeout, lambda: self.end("timeout", f"timed out after {timeout:g} s"))
        for output in outputs:
            loop.watch(output.descriptor, self._reader(output))

    @abstractmethod
    def end(self, status: str, note: str) -> None:
        """Make it stop; the first reason is the one that is told."""

    @abstractmethod
    def exited(self, status: int) -> None:
        """Its process has ended, with a status of `wait`."""

    def blame(self, status: str, note: str) -> None:
        """Note why it is being ended."""
        if self.status == "ok":
            self.status, self.note = status, note

    def finish(self) -> dict[str, Value]:
        """The part of the result that both share, when it has ended."""
        self.loop.never(self)
        for output in self.outputs:
            self.loop.forget(output.descriptor)
            output.drain()
        answer: dict[str, Value] = {"status": self.status, "note": self.note}
        stdout, stderr = self.outputs
        answer.update(stdout=stdout.content(), stderr=stderr.content())
        answer["truncated"] = int(any(output.truncated for output in self.outputs))
        return answer

    def _reader(self, output: Output) -> Callable[[], None]:
        def read() -> None:
            output.read()
            if not output.open:
                self.loop.forget(output.descriptor)
            elif output.size > ENDLESS:
                self.end("output_truncated", f"ended after {output.size >> 20} MiB of output")

        return read


class CommandJob(Job):
    """A command.

    Args:
        limit: bytes kept of each output.
        done: told the answer.
    """

    def __init__(
        self, loop: Loop, command: Command, limit: int, timeout: float, done: Callable[[dict[str, Value]], None]
    ) -> None:
        super().__init__(loop, [Output(reader, limit) for reader in command.readers], timeout)
        self._command = command
        self._done = done
        if command.stdin is not None:
            loop.watch(command.stdin, self._feed, WRITE)

    def end(self, status: str, note: str) -> None:
        self.blame(status, note)
        self._command.signal(signals.SIGKILL)

    def exited(self, status: int) -> None:
        if self._command.stdin is not None:
            self.loop.forget(self._command.stdin)
        self._command.close()
        answer = self.finish()
        if os.WIFSIGNALED(status):
            if answer["status"] == "ok":
                answer.update(status="killed", note=f"killed by signal {os.WTERMSIG(status)}")
        else:
            answer["exit_code"] = os.WEXITSTATUS(status)
        self._done(answer)

    def _feed(self) -> None:
        stdin = self._command.stdin
        self._command.feed()
        if self._command.stdin is None and stdin is not None:
            self.loop.forget(stdin)


class PythonJob(Job):
    """A piece of Python in an interpreter.

    Args:
        done: told the answer, in which `state_lost` says that the interpreter is dead.
    """

    def __init__(
        self,
        loop: Loop,
        interpreter: Interpreter,
        request: Frame,
        done: Callable[[dict[str, Value]], None],
    ) -> None:
        self._to_send = interpreter.begin(request["code"])
        super().__init__(loop, interpreter.outputs, float(request["timeout"]))
        self._interpreter = interpreter
        self._done = done
        self._ending = False
        self._send()

    def end(self, status: str, note: str) -> None:
        self.blame(status, note)
        if self._ending:
            return
        self._ending = True
        self._interpreter.signal(signals.SIGINT)
        self.loop.later(self, INTERRUPT_GRACE, lambda: self._interpreter.signal(signals.SIGKILL))

    def exited(self, status: int) -> None:
        why = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        self.blame("killed", f"the interpreter ended ({why})")
        self._complete({**self.finish(), "state_lost": 1})

    def _send(self) -> None:
        channel = self._interpreter.channel
        try:
            self._to_send = self._to_send[os.write(channel, self._to_send) :]
        except BlockingIOError:
            pass
        except OSError:
            self._to_send = b""  # it is dead, as will be seen
        if self._to_send:
            self.loop.watch(channel, self._send, WRITE)
        else:
            self.loop.watch(channel, self._receive)

    def _receive(self) -> None:
        try:
            answer = self._interpreter.answer()
        except (ValueError, EOFError):
            self.loop.forget(self._interpreter.channel)
            self._interpreter.signal(signals.SIGKILL)
            return
        if answer is not None:
            self._answered(answer)

    def _answered(self, answer: Frame) -> None:
        result = self.finish()
        if "truncated" in answer:
            result["truncated"] = 1
        if "memory" in answer and result["status"] == "ok":
            result.update(status="out_of_memory", note="out of memory")
        for name in ("value", "error"):
            if name in answer:
                result[name] = answer[name]
        self._complete(result)

    def _complete(self, result: dict[str, Value]) -> None:
        self.loop.forget(self._interpreter.channel)
        self._done(result)
