"""A running sandbox, spoken to over its link: the part that all providers share that run our program inside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, get_args

from agentfly.resources.sandbox.inside.frames import Frame, Value
from agentfly.resources.sandbox.link import Asking, LinkClosed
from agentfly.resources.sandbox.provider import Command, SandboxEnded
from agentfly.resources.sandbox.results import CommandResult, FileEntry, Piece, PythonResult, Status

T = TypeVar("T")

# What a call may take beyond its own limit: interrupting, killing, starting an interpreter anew.
_GRACE = 10.0
_FILE_TIMEOUT = 30.0
_CHUNK = 4 << 20


class Tree(Protocol):
    """The processes of a sandbox, as the host has them in its hand."""

    async def kill(self) -> None:
        """End them all; none is left when this returns."""
        ...

    def oom_kills(self) -> int:
        """How many processes the kernel has killed so far because memory ran out, as far as it tells."""
        ...


class RemoteRuntime:
    """A sandbox that has said that it is ready.

    Args:
        tree: its processes.
        link: the way to the program inside.
        disk: bytes of a file at most.
        grace: seconds that a call may take beyond its own limit, before the sandbox counts as dead.
    """

    def __init__(self, tree: Tree, link: Asking, disk: int, *, grace: float = _GRACE) -> None:
        self._tree = tree
        self._link = link
        self._disk = disk
        self._grace = grace
        self._oom_kills = tree.oom_kills()
        self._python = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as is known without asking it."""
        return not self._link.closed.done()

    async def run(self, command: Command) -> CommandResult:
        """Run a shell command.

        Raises:
            OSError: it can't be started there.
            SandboxEnded: it runs no longer.
        """
        return await self._ask("run", _command_request(command), command.timeout, self._command_result)

    async def run_python(self, code: str, timeout: float) -> PythonResult:
        """Run Python in the interpreter that lives on.

        Raises:
            SandboxEnded: it runs no longer.
        """
        async with self._python:
            return await self._ask("python", {"code": code, "timeout": timeout}, timeout, self._python_result)

    async def spawn(self, command: Command, *, keep_input: bool, hold: bool) -> int:
        """See `Runtime`."""
        request = {**_command_request(command), "keep_input": int(keep_input), "hold": int(hold)}
        return await self._ask("spawn", request, 0.0, lambda answer: int(answer["process"]))

    async def collect(self, process: int, wait: float) -> Piece:
        """See `Runtime`."""
        return await self._ask("collect", {"process": process, "wait": wait}, wait, _piece)

    async def give(self, process: int, data: bytes, *, close: bool) -> None:
        """See `Runtime`."""
        await self._ask("give", {"process": process, "data": data, "close": int(close)}, 0.0, _nothing)

    async def signal(self, process: int, number: int) -> None:
        """See `Runtime`."""
        await self._ask("signal", {"process": process, "number": number}, 0.0, _nothing)

    async def forget(self, process: int) -> None:
        """See `Runtime`."""
        await self._ask("forget", {"process": process}, 0.0, _nothing)

    async def processes(self) -> dict[int, bool]:
        """See `Runtime`."""
        told = await self._ask("processes", {}, 0.0, lambda answer: answer["processes"].decode().split())
        return {int(number): running == "1" for number, _, running in (item.partition(":") for item in told)}

    async def write(self, path: str, data: bytes) -> None:
        """Write a file.

        Raises:
            OSError: it can't be written.
            SandboxEnded: it runs no longer.
        """
        if len(data) > self._disk:
            raise OSError(28, f"{len(data)} bytes are more than the sandbox's disk has", path)
        await self._ask("write", {"path": path, "data": data}, _FILE_TIMEOUT, _nothing)

    async def read(self, path: str, most: int) -> bytes:
        """The beginning of a file.

        Raises:
            OSError: it can't be read.
            SandboxEnded: it runs no longer.
        """
        content = bytearray()
        while len(content) < most:
            length = min(_CHUNK, most - len(content))
            request: dict[str, Value] = {"path": path, "offset": len(content), "length": length}
            data = await self._ask("read", request, _FILE_TIMEOUT, lambda answer: answer["data"])
            content += data[:length]
            if len(data) < length:
                break
        return bytes(content)

    async def list(self, path: str) -> list[FileEntry]:
        """Entries of a folder, by name.

        Raises:
            OSError: it can't be read.
            SandboxEnded: it runs no longer.
        """
        entries = await self._ask("list", {"path": path}, _FILE_TIMEOUT, _entries)
        return sorted(entries, key=lambda entry: entry.name)

    async def ping(self) -> None:
        """Return when it has answered.

        Raises:
            SandboxEnded: it runs no longer.
        """
        await self._ask("ping", {}, 0.0, _nothing)

    async def kill(self) -> None:
        """End everything inside; nothing of it is left when this returns."""
        self._link.close()
        await self._tree.kill()

    async def _ask(self, operation: str, fields: Mapping[str, Value], limit: float, parse: Callable[[Frame], T]) -> T:
        try:
            async with asyncio.timeout(limit + self._grace):
                answer = await self._link.ask(operation, fields)
            if "errno" not in answer:
                return parse(answer)
            error = _os_error(answer, fields)
        except LinkClosed:
            raise self._ended("the sandbox has ended") from None
        except TimeoutError:
            raise self._ended("the sandbox did not answer any more") from None
        except (LookupError, ValueError):
            raise self._ended("the sandbox gave an answer that is none") from None
        raise error

    def _ended(self, reason: str) -> SandboxEnded:
        self._link.close()
        if self._tree.oom_kills() > self._oom_kills:
            return SandboxEnded("out_of_memory", "out of memory")
        return SandboxEnded("killed", reason)

    def _command_result(self, answer: Frame) -> CommandResult:
        exit_code = int(answer["exit_code"]) if "exit_code" in answer else None
        return CommandResult(exit_code, **self._common(answer))

    def _python_result(self, answer: Frame) -> PythonResult:
        value, error = (_text(answer[name]) if name in answer else None for name in ("value", "error"))
        return PythonResult(value, error=error, state_lost="state_lost" in answer, **self._common(answer))

    def _common(self, answer: Frame) -> dict[str, Any]:
        """The part of a result that both kinds share."""
        status, note, truncated = answer["status"].decode(), _text(answer["note"]), answer["truncated"] == b"1"
        oom_kills = self._tree.oom_kills()
        if oom_kills > self._oom_kills:
            self._oom_kills = oom_kills
            status, note = "out_of_memory", "out of memory"
        if status == "ok" and truncated:
            status = "output_truncated"
        texts = {name: _text(answer[name]) for name in ("stdout", "stderr")}
        return {**texts, "status": status, "note": note, "truncated": truncated}


def _command_request(command: Command) -> dict[str, Value]:
    """Raises OSError: it can't be a command."""
    env = [part for item in command.env.items() for part in item]
    if any("\0" in part for part in (command.text, command.folder, *env)):
        raise OSError(22, "a null byte in a command, its folder or its variables")
    return {
        "command": command.text,
        "timeout": command.timeout,
        "stdin": command.stdin,
        "env": "\0".join(env),
        "folder": command.folder,
    }


def _piece(answer: Frame) -> Piece:
    return Piece(
        _text(answer["stdout"]),
        _text(answer["stderr"]),
        running=answer["running"] == b"1",
        exit_code=int(answer["exit_code"]) if "exit_code" in answer else None,
        status=_status(answer),
        note=_text(answer["note"]),
        left_out=int(answer["left_out"]),
    )


def _status(answer: Frame) -> Status:
    found: Any = answer["status"].decode()
    if found not in get_args(Status):
        raise ValueError(found)
    status: Status = found
    return status


def _os_error(answer: Frame, fields: Mapping[str, Value]) -> OSError:
    number, text = int(answer["errno"]), _text(answer["text"])
    path = fields.get("path", fields.get("folder"))
    return OSError(number, text or os.strerror(number), path)


def _entries(answer: Frame) -> list[FileEntry]:
    parts = answer["entries"].split(b"\0")
    kinds: Any = (kind.decode() for kind in parts[::3])
    return [
        FileEntry(name.decode("utf-8", "backslashreplace"), kind, int(size))
        for kind, size, name in zip(kinds, parts[1::3], parts[2::3], strict=False)
    ]


def _nothing(answer: Frame) -> None:
    pass


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
