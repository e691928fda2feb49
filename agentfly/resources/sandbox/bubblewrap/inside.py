"""The process inside a sandbox: does what the host asks over a socket. Standard library only.

Two processes: this controller, and the interpreter that runs the model's Python. The interpreter is forked from
the controller, so it starts in a millisecond; it can hang, crash or close what it likes without taking the
controller along.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import traceback

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from typing import IO, Any, NoReturn

    Request = dict[str, Any]
    Answer = dict[str, Any]

CELL = "<cell>"
INTERRUPT_GRACE = 1.0


def set_limits(limits: dict[str, int]) -> None:
    for kind, value in (
        (resource.RLIMIT_AS, limits["memory"]),
        (resource.RLIMIT_NPROC, limits["max_processes"]),
        (resource.RLIMIT_FSIZE, limits["disk"]),
        (resource.RLIMIT_NOFILE, 1024),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


class Output:
    """What comes out of a pipe, kept up to a limit, read to the end all the same."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor, self.limit = descriptor, limit
        self.kept: list[bytes] = []
        self.size, self.open = 0, True

    def read(self) -> None:
        try:
            data = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return
        if not data:
            self.open = False
        elif self.size < self.limit:
            self.kept.append(data[: self.limit - self.size])
        self.size += len(data)

    def text(self) -> str:
        return b"".join(self.kept).decode("utf-8", "replace")


def pump(outputs: list[Output], watched: list[int], deadline: float) -> bool:
    """Read outputs until a watched descriptor is readable (True) or the deadline has passed (False)."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        ready, _, _ = select.select([*watched, *(o.descriptor for o in outputs if o.open)], [], [], left)
        for output in outputs:
            if output.descriptor in ready:
                output.read()
        if any(descriptor in ready for descriptor in watched):
            return True


def drain(outputs: list[Output]) -> None:
    """Take what is in the pipes already, without waiting: a process in the background may hold them open for ever."""
    while open_ := [output for output in outputs if output.open and output.size <= output.limit]:
        ready, _, _ = select.select([output.descriptor for output in open_], [], [], 0)
        if not ready:
            return
        for output in open_:
            if output.descriptor in ready:
                output.read()


def receive(sock: socket.socket) -> Any:
    header = sock.recv(4, socket.MSG_WAITALL)
    if len(header) < 4:
        return None
    data = sock.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL)
    return json.loads(data)


def send(sock: socket.socket, message: Answer) -> None:
    data = json.dumps(message).encode()
    sock.sendall(len(data).to_bytes(4, "big") + data)


# The interpreter


def run_cell(code: str, variables: dict[str, Any]) -> tuple[str | None, str | None]:
    """Value and error of a piece of code."""
    try:
        tree = ast.parse(code, CELL)
        last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if last is not None:
            tree.body.pop()
        exec(compile(tree, CELL, "exec"), variables)
        if last is None:
            return None, None
        value = eval(compile(ast.Expression(last.value), CELL, "eval"), variables)
        return (None if value is None else repr(value)), None
    except BaseException as error:
        return None, describe(error)


def describe(error: BaseException) -> str:
    """The traceback from the code's own first frame on."""
    if isinstance(error, SyntaxError) and error.filename == CELL:
        return "".join(traceback.format_exception_only(type(error), error)).rstrip()
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != CELL:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame)).rstrip()


def interpret(sock: socket.socket, limit: int) -> NoReturn:
    """The interpreter's life: receive code, run it, answer, until the controller is gone."""
    variables = {"__name__": "__main__", "__builtins__": __builtins__}
    while True:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        message = receive(sock)
        if message is None:
            os._exit(0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            value, error = run_cell(message["code"], variables)
        except KeyboardInterrupt as late:
            value, error = None, describe(late)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        cut = any(text is not None and len(text) > limit for text in (value, error))
        send(sock, {"value": value and value[:limit], "error": error and error[-limit:], "cut": cut})


class Interpreter:
    """The controller's side of an interpreter."""

    def __init__(self, close_in_child: list[socket.socket], limit: int) -> None:
        self.limit = limit
        ours, theirs = socket.socketpair()
        pipes = [os.pipe() for _ in range(2)]
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            for sock in (*close_in_child, ours):
                sock.close()
            for number, (reader, writer) in enumerate(pipes, start=1):
                os.close(reader)
                os.dup2(writer, number)
                os.close(writer)
            interpret(theirs, limit)
        theirs.close()
        for reader, writer in pipes:
            os.close(writer)
            os.set_blocking(reader, False)
        self.sock, self.pipes = ours, [reader for reader, _ in pipes]

    def run(self, code: str, timeout: float) -> Answer:
        outputs = [Output(pipe, self.limit) for pipe in self.pipes]
        result: Answer = {"value": None, "error": None, "status": "ok"}
        lost = False
        try:
            send(self.sock, {"code": code})
            answered = pump(outputs, [self.sock.fileno()], time.monotonic() + timeout)
            if not answered:
                result["status"] = "timeout"
                self.signal(signal.SIGINT)
                answered = pump(outputs, [self.sock.fileno()], time.monotonic() + INTERRUPT_GRACE)
            answer = receive(self.sock) if answered else None
        except (OSError, ValueError):
            answer = None
        drain(outputs)
        if answer is None:
            lost = True
            if result["status"] == "ok":
                result["status"] = "killed"
        else:
            result["value"] = answer["value"]
            result["error"] = answer["error"] if result["status"] == "ok" else None
        truncated = any(o.size > o.limit for o in outputs) or bool(answer and answer["cut"])
        texts = {"stdout": outputs[0].text(), "stderr": outputs[1].text()}
        return {**result, **texts, "state_lost": lost, "truncated": truncated}

    def signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except OSError:
            pass

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass
        self.sock.close()
        for pipe in self.pipes:
            os.close(pipe)


# The controller


def run_command(request: Request, limit: int) -> Answer:
    env = {**os.environ, **request["env"]}
    process = subprocess.Popen(
        ["/bin/sh", "-c", request["command"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=request["cwd"],
        start_new_session=True,
    )
    assert process.stdin and process.stdout and process.stderr
    outputs = [Output(process.stdout.fileno(), limit), Output(process.stderr.fileno(), limit)]
    for output in outputs:
        os.set_blocking(output.descriptor, False)
    feed(process.stdin, request["stdin"].encode())
    exited = os.pidfd_open(process.pid)
    status = "ok"
    try:
        if not pump(outputs, [exited], time.monotonic() + request["timeout"]):
            status = "timeout"
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    finally:
        os.close(exited)
    drain(outputs)
    process.stdout.close()
    process.stderr.close()
    if status == "ok" and code < 0:
        status = "killed"
    return {
        "exit_code": None if code < 0 else code,
        "stdout": outputs[0].text(),
        "stderr": outputs[1].text(),
        "status": status,
        "truncated": any(o.size > o.limit for o in outputs),
    }


def feed(stdin: IO[bytes], data: bytes) -> None:
    """Give a command its input from another process, so that neither waits for the other."""
    if data and os.fork() == 0:
        try:
            os.setsid()
            stdin.write(data)
            stdin.close()
        except OSError:
            pass
        os._exit(0)
    stdin.close()


def write_file(request: Request, limit: int) -> Answer:
    path = request["path"]
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with open(path, "wb") as file:
        file.write(base64.b64decode(request["data"]))
    return {}


def read_file(request: Request, limit: int) -> Answer:
    # A pipe or a device in the file's place would never end.
    descriptor = os.open(request["path"], os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not os.path.isfile(f"/proc/self/fd/{descriptor}"):
            raise IsADirectoryError(21, "not a regular file")
        return {"data": base64.b64encode(file.read(request["max_bytes"])).decode()}


def list_folder(request: Request, limit: int) -> Answer:
    entries = []
    with os.scandir(request["path"]) as found:
        for entry in found:
            kind = (
                "link" if entry.is_symlink() else "folder" if entry.is_dir() else "file" if entry.is_file() else "other"
            )
            size = entry.stat(follow_symlinks=False).st_size if kind == "file" else 0
            entries.append({"name": entry.name.encode("utf-8", "replace").decode(), "kind": kind, "size": size})
    return {"entries": sorted(entries, key=lambda entry: entry["name"])}


OPERATIONS = {"run": run_command, "write": write_file, "read": read_file, "list": list_folder}


def main() -> None:
    host = socket.socket(fileno=int(sys.argv[1]))
    limits = json.loads(sys.argv[2])
    limit = limits["max_output"]
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    set_limits(limits)
    interpreter = Interpreter([host], limit)
    send(host, {})
    while (request := receive(host)) is not None:
        try:
            if request["op"] == "python":
                answer = interpreter.run(request["code"], request["timeout"])
                if answer["state_lost"]:
                    interpreter.end()
                    interpreter = Interpreter([host], limit)
            else:
                answer = OPERATIONS[request["op"]](request, limit)
        except OSError as error:
            answer = {"os_error": [error.errno or 5, error.strerror or str(error)]}
        except (ValueError, MemoryError, RuntimeError) as error:
            answer = {"os_error": [22, f"{type(error).__name__}: {error}"]}
        send(host, answer)


if __name__ == "__main__":
    main()
