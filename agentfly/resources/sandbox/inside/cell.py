"""The interpreter that runs the model's Python, piece by piece, in one namespace."""

from __future__ import annotations

import io
import os
import sys

from agentfly.resources.sandbox.inside.frames import HEADER, Value, decode, encode
from agentfly.resources.sandbox.inside.signals import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, NoReturn

_COROUTINE = 0x80  # inspect.CO_COROUTINE
_SPARE = 600  # where copies of the outputs are kept, far from what programs number by hand
_CELLS_WITH_SOURCE = 500


def interpret(channel: int, limit: int, folders: list[str]) -> NoReturn:
    """The interpreter's life: receive code, run it, answer, until the other side is gone.

    Args:
        channel: a socket to the controller.
        limit: bytes of a value, and of an error.
        folders: of packages that can be imported beside the interpreter's own.
    """
    cells = Cells(limit, folders)
    while True:
        code = _receive(channel)
        if code is None:
            os._exit(0)
        me = os.getpid()
        answer = encode(cells.run(code))
        if os.getpid() != me:
            os._exit(0)  # the code forked, and this is the child that came out at its end
        while answer:
            answer = answer[os.write(channel, answer) :]


def _receive(channel: int) -> bytes | None:
    size = int.from_bytes(_exactly(channel, HEADER), "big")
    body = _exactly(channel, size)
    return decode(body)["code"] if body else None


def _exactly(channel: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(channel, size - len(data))
        if not more:
            return b""
        data += more
    return data


class Cells:
    """Runs pieces of code in one namespace, as the module `__main__`."""

    def __init__(self, limit: int, folders: list[str]) -> None:
        self._limit = limit
        self._count = 0
        self._running = False
        self._loop: Any = None
        self._main = type(sys)("__main__")
        sys.modules["__main__"] = self._main
        sys.argv = [""]
        self._warm_up(folders)
        self._outputs = [_spare(number) for number in (1, 2)]

    def run(self, code: bytes) -> dict[str, Value]:
        """Run a piece of code; the answer has `value`, `error` and `memory` where there is any."""
        self._count += 1
        self._restore_outputs()
        for finder in list(sys.path_importer_cache.values()):
            if finder is not None and hasattr(finder, "invalidate_caches"):
                finder.invalidate_caches()  # modules that have just been written are found
        signals.signal(signals.SIGINT, self._interrupted)
        answer: dict[str, Value] = {}
        try:
            self._running = True
            self._execute(code, answer)
            self._running = False
        # While an error was being told: an interrupt, or what the error itself raises.
        except BaseException as error:
            self._running = False
            answer = {"error": type(error).__name__}
            if isinstance(error, MemoryError):
                answer["memory"] = 1
        signals.signal(signals.SIGINT, signals.SIG_IGN)
        self._flush()
        return answer

    def _execute(self, code: bytes, answer: dict[str, Value]) -> None:
        try:
            value = self._value(code)
            if value is not None:
                self._tell(answer, "value", repr(value))
        except SystemExit as stop:
            if stop.code not in (None, 0):
                self._tell(answer, "error", f"SystemExit: {stop.code}")
        except BaseException as error:
            if isinstance(error, MemoryError):
                answer["memory"] = 1
            self._tell(answer, "error", self._describe(error))

    def _tell(self, answer: dict[str, Value], name: str, text: str) -> None:
        if len(text) > self._limit:
            half = self._limit // 2
            left_out = len(text) - 2 * half
            text = f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"
            answer["truncated"] = 1
        answer[name] = text.encode("utf-8", "backslashreplace")

    def _value(self, code: bytes) -> object:
        """Run it; what its last expression gives.

        Raises:
            BaseException: whatever it raised.
        """
        import ast

        name = f"<cell {self._count}>"
        self._remember(name, code)
        tree = ast.parse(code, name)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr):
            self._step(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True))
            return None
        tree.body.pop()
        self._step(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True))
        expression = ast.Expression(last.value)
        return self._step(compile(expression, name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True))

    def _step(self, code: CodeType) -> object:
        value = eval(code, self._main.__dict__)
        if not code.co_flags & _COROUTINE:
            return value
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(value)

    def _remember(self, name: str, code: bytes) -> None:
        """Tracebacks show the lines of the code."""
        import linecache

        lines = code.decode("utf-8", "replace").splitlines(True)
        linecache.cache[name] = (len(code), None, lines, name)
        linecache.cache.pop(f"<cell {self._count - _CELLS_WITH_SOURCE}>", None)

    def _describe(self, error: BaseException) -> str:
        """The traceback from the code's own first frame on."""
        import traceback

        frame = error.__traceback__
        while frame is not None and not frame.tb_frame.f_code.co_filename.startswith("<cell "):
            frame = frame.tb_next
        return "".join(traceback.format_exception(type(error), error, frame)).rstrip()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._running:
            raise KeyboardInterrupt

    def _restore_outputs(self) -> None:
        """Code may have closed them, or left something else in their place."""
        for number, spare in enumerate(self._outputs, start=1):
            try:
                os.dup2(spare, number)
            except OSError:
                pass
        for name, number in (("stdout", 1), ("stderr", 2)):
            stream = getattr(sys, name, None)
            if stream is None or getattr(stream, "closed", True):
                raw = io.FileIO(number, "w", closefd=False)
                stream = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                pass

    def _warm_up(self, folders: list[str]) -> None:
        """What a first piece of code would wait for; nobody waits for it now."""
        import ast
        import builtins
        import linecache
        import site
        import traceback

        try:
            site.main()
        except BaseException:
            pass  # a package's start-up file that can't run here
        sys.path[:0] = ["", *folders]
        sys.stdout = sys.stderr = None  # they are made when there is something to run
        self._main.__dict__["__builtins__"] = builtins
        compile(ast.parse("0"), "", "exec")
        traceback.format_exception(ValueError, ValueError(), None)
        linecache.checkcache()


def _spare(descriptor: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _SPARE + descriptor)
