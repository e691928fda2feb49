"""The first process inside: does what the host asks, and looks after all that it has started.

It is process 1 of its own process namespace, so nothing inside can kill or stop it, and when it ends, all end. The
interpreter is forked from it, so a new one starts in a millisecond.
"""

from __future__ import annotations

import errno
import os
import sys
from collections import deque

from agentfly.resources.sandbox.inside.background import Process, Processes
from agentfly.resources.sandbox.inside.command import Command
from agentfly.resources.sandbox.inside.files import Files
from agentfly.resources.sandbox.inside.frames import Frame, Inbox, Value, decode, encode
from agentfly.resources.sandbox.inside.interpreter import Interpreter
from agentfly.resources.sandbox.inside.jobs import CommandJob, Job, PythonJob
from agentfly.resources.sandbox.inside.limits import Limits, close_all
from agentfly.resources.sandbox.inside.loop import WRITE, Loop
from agentfly.resources.sandbox.inside.output import Pieces, Pipe
from agentfly.resources.sandbox.inside.signals import signals
from agentfly.resources.sandbox.inside.watch import Watch, processes

_MOST_REQUEST = 1 << 31
_BUSY, _IDLE = 0.05, 0.5  # seconds between two looks at memory and files


class Controller:
    """Serves the host's requests.

    Args:
        host: the socket to it.
        settings: its first message.
    """

    def __init__(self, host: int, settings: Frame) -> None:
        self._host = host
        self._inbox = Inbox(_MOST_REQUEST)
        self._outbox = bytearray()
        self._limit = int(settings["max_output"])
        self._limits = Limits(settings)
        self._packages = [os.fsdecode(path) for path in settings["packages"].split(b"\0") if path]
        folders = tuple(os.fsdecode(path) for path in settings["folders"].split(b"\0"))
        self._files = Files(folders[0], folders[1:])
        watched = (*folders, "/dev/shm")  # a file takes memory of the kernel there too, however small it is
        self._watch = Watch(int(settings["watch_memory"]), int(settings["max_files"]), watched)
        self._is_init = os.getpid() == 1
        self._loop = Loop()
        self._commands: dict[bytes, CommandJob] = {}
        self._children: dict[int, CommandJob | Process] = {}
        self._processes = Processes()
        self._collecting: dict[bytes, Process] = {}  # by the request that waits for news
        self._python: tuple[bytes, PythonJob] | None = None
        self._queue: deque[Frame] = deque()
        self._leftovers: list[Pipe] = []
        self._lost = False  # the interpreter died between two calls
        self._interpreter = self._new_interpreter()
        self._interpreter_pid = self._interpreter.pid

    def serve(self) -> None:
        """Until the host is gone."""
        reader, writer = os.pipe()
        for descriptor in (reader, writer, self._host):
            os.set_blocking(descriptor, False)
        signals.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signals.signal(signals.SIGCHLD, lambda number, frame: None)
        self._loop.watch(reader, lambda: self._reap(reader))
        self._loop.watch(self._host, self._receive)
        self._send({"id": 0, "ready": 1})
        while True:
            self._loop.turn()

    # Requests

    def _receive(self) -> None:
        try:
            data = os.read(self._host, 1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
        for request in self._inbox.feed(data):
            try:
                self._handle(request)
            except OSError as error:
                self._refuse(request, error.errno or errno.EIO, error.strerror or str(error))
            except (ValueError, MemoryError, RuntimeError) as error:
                self._refuse(request, errno.EINVAL, f"{type(error).__name__}: {error}")

    def _handle(self, request: Frame) -> None:
        operation = request["op"]
        if operation == b"python":
            self._queue.append(request)
            self._next_python()
        elif operation == b"run":
            self._run(request)
        elif operation == b"cancel":
            self._cancel(request["id"])
        elif operation in (b"spawn", b"collect", b"give", b"signal", b"forget", b"processes"):
            self._background(operation, request)
        elif operation == b"write":
            self._answer(request["id"], self._files.write(request))
        elif operation == b"read":
            self._answer(request["id"], self._files.read(request))
        elif operation == b"list":
            self._answer(request["id"], self._files.list(request))
        else:
            self._answer(request["id"], {})

    def _answer(self, number: bytes, fields: dict[str, Value]) -> None:
        self._send({"id": number, **fields})

    def _refuse(self, request: Frame, number: int, text: str) -> None:
        self._answer(request["id"], {"errno": number, "text": text})

    def _send(self, fields: dict[str, Value]) -> None:
        self._outbox += encode(fields)
        self._flush()

    def _flush(self) -> None:
        try:
            del self._outbox[: os.write(self._host, self._outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self._end()
        if self._outbox:
            self._loop.watch(self._host, self._flush_and_receive, WRITE | 1)
        else:
            self._loop.watch(self._host, self._receive)

    def _flush_and_receive(self) -> None:
        self._flush()
        self._receive()

    # Python

    def _new_interpreter(self) -> Interpreter:
        try:
            return Interpreter(self._limits, self._limit, self._packages)
        except BlockingIOError:  # there are too many processes
            self._make_room()
            return Interpreter(self._limits, self._limit, self._packages)

    def _next_python(self) -> None:
        if self._python is not None or not self._queue:
            return
        request = self._queue.popleft()
        number = request["id"]
        self._python = (number, PythonJob(self._loop, self._interpreter, request, self._python_done))
        self._look_soon()

    def _python_done(self, result: dict[str, Value]) -> None:
        assert self._python is not None
        number, _ = self._python
        self._python = None
        if result.get("state_lost"):
            self._replace_interpreter()
        elif self._lost:
            result.update(state_lost=1, note="the interpreter ended since the last call")
        self._lost = False
        self._answer(number, result)
        self._next_python()

    def _replace_interpreter(self) -> None:
        old, self._interpreter_pid = self._interpreter, 0
        old.signal(signals.SIGKILL)  # what it had started, in its group
        old.close()
        self._interpreter = self._new_interpreter()
        self._interpreter_pid = self._interpreter.pid

    # Commands

    def _run(self, request: Frame) -> None:
        command = self._start_command(request)
        number, timeout = request["id"], float(request["timeout"])
        done = lambda result: self._run_done(number, result)  # noqa: E731
        job = CommandJob(self._loop, command, self._limit, timeout, done)
        self._commands[number] = self._children[command.pid] = job
        self._look_soon()

    def _start_command(self, request: Frame) -> Command:
        fields = request["env"].split(b"\0")
        env = {**os.environ}
        for at in range(0, len(fields) - 1, 2):
            env[os.fsdecode(fields[at])] = os.fsdecode(fields[at + 1])
        folder = os.path.join(self._files.workspace, os.fsdecode(request["folder"]))
        text, stdin = os.fsdecode(request["command"]), request["stdin"]
        while True:
            try:
                return Command(text, stdin, folder, env, self._limits)
            except InterruptedError:  # where a supervisor decides on system calls, signals interrupt any of them
                continue
            except BlockingIOError:
                self._make_room()
                return Command(text, stdin, folder, env, self._limits)

    def _run_done(self, number: bytes, result: dict[str, Value]) -> None:
        # What goes on in the background may go on writing: it is read, slowly, so that it doesn't stop there.
        for output in self._commands.pop(number).outputs:
            if output.open:
                self._leftovers.append(output)
                self._look_soon()
            else:
                os.close(output.descriptor)
        self._answer(number, result)

    def _background(self, operation: bytes, request: Frame) -> None:
        number = request["id"]
        if operation == b"spawn":
            self._processes.room()
            command = self._start_command(request)
            outputs = [Pieces(reader, self._limit, request["hold"] == b"1") for reader in command.readers]
            process = Process(self._loop, command, outputs, float(request["timeout"]), request["keep_input"] == b"1")
            self._children[command.pid] = process
            self._look_soon()
            self._answer(number, {"process": self._processes.add(process)})
        elif operation == b"collect":
            self._collecting[number] = process = self._processes.named(request)
            process.collect(float(request["wait"]), lambda told: self._collected(number, told))
        elif operation == b"give":
            self._processes.named(request).give(request["data"], request["close"] == b"1")
            self._answer(number, {})
        elif operation == b"signal":
            self._processes.named(request).signal(int(request["number"]))
            self._answer(number, {})
        elif operation == b"forget":
            process = self._processes.forget(request)
            process.leave()
            process.signal(signals.SIGKILL)
            self._leftovers += process.outputs
            self._look_soon()
            self._answer(number, {})
        else:
            self._answer(number, self._processes.list())

    def _collected(self, number: bytes, told: dict[str, Value]) -> None:
        self._collecting.pop(number, None)
        self._answer(number, told)

    def _cancel(self, number: bytes) -> None:
        if self._python is not None and self._python[0] == number:
            self._python[1].end("killed", "cancelled")
        elif number in self._commands:
            self._commands[number].end("killed", "cancelled")
        elif number in self._collecting:
            self._collecting[number].drop_answer()
        else:
            self._queue = deque(request for request in self._queue if request["id"] != number)

    # Looking after it all

    def _reap(self, reader: int) -> None:
        try:
            os.read(reader, 1 << 12)
        except BlockingIOError:
            pass
        self._collect(os.WNOHANG)

    def _collect(self, options: int) -> None:
        """Take note of all that have ended; without options, wait for those that haven't."""
        while True:
            try:
                pid, status = os.waitpid(-1, options)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._children:
                self._children.pop(pid).exited(status)
            elif pid == self._interpreter_pid:
                self._interpreter_exited(status)

    def _interpreter_exited(self, status: int) -> None:
        if self._python is not None:
            self._python[1].exited(status)
            return
        # Killed by something that went on in the background: the next call is told.
        self._lost = True
        self._replace_interpreter()

    def _look_soon(self) -> None:
        self._loop.later("look", _BUSY, self._look)

    def _look(self) -> None:
        for output in list(self._leftovers):
            output.read()
            output.clear()
            if not output.open:
                self._leftovers.remove(output)
                os.close(output.descriptor)
        hog = self._watch.memory_hog()
        if hog is not None:
            self._blame("out_of_memory", "out of memory")
            _kill(hog)
        if self._watch.too_many_files():
            self._blame("killed", "too many files")
            self._sweep()
        if self._commands or self._python is not None or hog is not None:
            self._look_soon()
        elif self._leftovers or self._processes.running() or (self._watch.watches_memory and len(processes()) > 1):
            self._loop.later("look", _IDLE, self._look)

    def _jobs(self) -> list[Job | Process]:
        jobs: list[Job | Process] = [*self._commands.values(), *self._processes.running()]
        return jobs if self._python is None else [*jobs, self._python[1]]

    def _blame(self, status: str, note: str) -> None:
        for job in self._jobs():
            job.blame(status, note)

    def _sweep(self) -> None:
        """End everything but this process."""
        if self._is_init:
            _kill(-1)
        else:
            self._interpreter.signal(signals.SIGKILL)
            ending: list[Job | Process] = [*self._commands.values(), *self._processes.running()]
            for job in ending:
                job.end("killed", "ended")

    def _make_room(self) -> None:
        """There are too many processes to start one more: end them all."""
        self._blame("killed", "too many processes")
        self._sweep()
        if self._is_init:
            self._collect(0)

    def _end(self) -> None:
        """The host is gone, or has no use for this sandbox any more."""
        self._sweep()
        os._exit(0)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signals.SIGKILL)
    except OSError:
        pass


def main(host: int) -> None:
    """Read the settings, say that we are ready, serve."""
    signals.signal(signals.SIGINT, signals.SIG_IGN)
    close_all(host)
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    size = int.from_bytes(_exactly(host, 4), "big")
    settings = decode(_exactly(host, size))
    sys.argv = [""]
    Controller(host, settings).serve()


def _exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
