"""The sandbox as a resource: what tools hold."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from errno import EINVAL
from signal import SIGTERM
from typing import TypeVar
from uuid import uuid4

from agentfly.errors import ResourceDied, ToolError
from agentfly.resources.resource import Resource
from agentfly.resources.sandbox.provider import Command, Runtime, SandboxEnded
from agentfly.resources.sandbox.providers import check_settings, provider_named
from agentfly.resources.sandbox.results import CommandResult, FileEntry, Piece, PythonResult
from agentfly.resources.sandbox.settings import SandboxSettings
from agentfly.resources.sandbox.transfer import last_line, pack_command, unpack_command

# Seconds: what a folder may take to be packed, and how long one request waits for news of a command.
_TRANSFER = 120.0
_NEWS = 20.0

T = TypeVar("T")


class Sandbox(Resource):
    """A place where a model's code runs: a workspace, a shell, and a Python interpreter that lives on.

    Everything, reading and writing files included, is done by a process inside; the host never follows a path
    that code inside could have prepared. Pieces of Python run one after the other, commands and file operations
    beside them.

    What the code inside brings about is a result, never a fault of the infrastructure: when it brings its whole
    sandbox down, another one is started, with the files of the setup, and the result says what was lost.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._provider = provider_named(settings.provider)
        self._image = settings.image
        self._runtime: Runtime | None = None
        self._files: dict[str, bytes] = {}
        self._prepare: str | None = None
        self._renewing = asyncio.Lock()

    async def start(self) -> None:
        self._image = self._settings.image
        await self._begin()

    async def setup(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        image: str | None = None,
        prepare: str | None = None,
    ) -> None:
        """Write the files that a rollout begins with, by their paths in the workspace.

        Args:
            files: by path.
            image: what this sandbox is made from, where its spec's own image won't do; it is started anew with it.
            prepare: a shell command to run then.

        Raises:
            ConfigError: its provider has no images.
            ToolError: the command failed.
        """
        if image is not None and image != self._image:
            await self._become(image)
        self._files = {path: _bytes(content) for path, content in (files or {}).items()}
        self._prepare = prepare
        await self._write_files()

    async def renew(self, files: Mapping[str, str | bytes] | None = None, *, prepare: str | None = None) -> None:
        """End everything inside, and go on in a new sandbox of the same kind with these files and no others.

        Args:
            files, prepare: as in `setup`.
        """
        await self.stop()
        await self._begin()
        await self.setup(files, prepare=prepare)

    async def reset(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        self._files, self._prepare = {}, None
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.kill()

    async def healthy(self) -> bool:
        runtime = self._runtime
        if runtime is None or not runtime.alive:
            return False
        with contextlib.suppress(SandboxEnded):
            await runtime.ping()
            return True
        return False

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: str | bytes = "",
        env: Mapping[str, str] | None = None,
        cwd: str = ".",
    ) -> CommandResult:
        """Run a shell command in the workspace.

        What it leaves running in the background lives on until the lease ends.

        Args:
            timeout: seconds; the sandbox's own limit when None.
            env: variables beside the sandbox's.
            cwd: folder, relative to the workspace.

        Raises:
            OSError: it can't be started there.
        """
        limit = self._limit(timeout)
        request = Command(command, limit, _bytes(stdin), dict(env or {}), cwd)
        try:
            return await self._living().run(request)
        except SandboxEnded as ended:
            await self._renew()
            return CommandResult(None, "", "", ended.status, ended.reason, files_lost=True)

    async def stream(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: str | bytes = "",
        env: Mapping[str, str] | None = None,
        cwd: str = ".",
    ) -> AsyncGenerator[Piece]:
        """As `run`, but its output comes as it is written; the last piece says how it ended.

        A command that writes faster than it is read waits. Whoever stops reading ends it.

        Args:
            timeout, stdin, env, cwd: as in `run`.

        Raises:
            OSError: it can't be started there.
            ToolError: the sandbox had ended, and a new one was started.
        """
        request = Command(command, self._limit(timeout), _bytes(stdin), dict(env or {}), cwd)
        runtime = self._living()
        process = await self._operation(lambda runtime: runtime.spawn(request, keep_input=False, hold=True))
        try:
            while (piece := await self._operation(lambda runtime: runtime.collect(process, _NEWS))).running:
                if piece.stdout or piece.stderr:
                    yield piece
            yield piece
        finally:
            if runtime.alive and runtime is self._runtime:
                with contextlib.suppress(SandboxEnded, ProcessLookupError):
                    await runtime.forget(process)

    async def spawn(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: str | bytes = "",
        keep_input: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str = ".",
    ) -> int:
        """Start a command in the background, such as a server; it ends with the lease at the latest.

        Of output that nobody fetches the newest is kept, up to the sandbox's limit.

        Args:
            timeout: seconds after which it is killed; None is no limit.
            stdin: what it may read.
            keep_input: more input may follow, by `send`.
            env, cwd: as in `run`.

        Returns:
            Its number, for `output`, `send` and `signal`.

        Raises:
            OSError: it can't be started there, or there are too many.
            ToolError: the sandbox had ended, and a new one was started.
        """
        request = Command(command, timeout or 0.0, _bytes(stdin), dict(env or {}), cwd)
        return await self._operation(lambda runtime: runtime.spawn(request, keep_input=keep_input, hold=False))

    async def output(self, process: int, *, wait: float = 0.0) -> Piece:
        """What a background process has written since it was last asked, and whether it runs.

        Args:
            wait: seconds to wait for something new.

        Raises:
            ProcessLookupError: there is no such process.
            ToolError: the sandbox had ended, and a new one was started.
        """
        return await self._operation(lambda runtime: runtime.collect(process, max(wait, 0.0)))

    async def send(self, process: int, data: str | bytes, *, close: bool = False) -> None:
        """Give a background process more input, and no more after that if `close`.

        Raises:
            OSError: it reads no more, or too slowly; raises also as `output`.
        """
        await self._operation(lambda runtime: runtime.give(process, _bytes(data), close=close))

    async def signal(self, process: int, number: int = SIGTERM) -> None:
        """Send a signal to a background process and what it has started. Raises as `output`."""
        await self._operation(lambda runtime: runtime.signal(process, number))

    async def forget(self, process: int) -> None:
        """Kill a background process if it runs, and know it no longer. Raises as `output`."""
        await self._operation(lambda runtime: runtime.forget(process))

    async def processes(self) -> dict[int, bool]:
        """Background processes by number, and whether each runs. Raises ToolError as `output`."""
        return await self._operation(lambda runtime: runtime.processes())

    async def run_python(self, code: str, *, timeout: float | None = None) -> PythonResult:
        """Run Python in the interpreter that lives on between calls.

        At the limit the code is interrupted, which keeps its variables; code that doesn't heed that is killed,
        and a new interpreter started.

        Args:
            timeout: seconds; the sandbox's own limit when None.
        """
        limit = self._limit(timeout)
        try:
            return await self._living().run_python(code, limit)
        except SandboxEnded as ended:
            await self._renew()
            status, note = ended.status, ended.reason
            return PythonResult(None, "", "", None, status, note, state_lost=True, files_lost=True)

    async def write(self, path: str, content: str | bytes) -> None:
        """Write a file in the workspace or in `/tmp`; its folders are made.

        Raises:
            OSError: it can't be written; `PermissionError` when the path leads elsewhere.
            ToolError: the sandbox had ended, and a new one was started.
        """
        data = _bytes(content)
        await self._operation(lambda runtime: runtime.write(path, data))

    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> str:
        """Text of a file, what isn't UTF-8 replaced, cut at `max_bytes`. Raises as `read_bytes`."""
        return (await self.read_bytes(path, max_bytes=max_bytes)).decode(errors="replace")

    async def read_bytes(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        """Content of a file in the workspace or in `/tmp`, cut at `max_bytes`.

        Raises:
            OSError: it can't be read; `PermissionError` when the path leads elsewhere.
            ToolError: the sandbox had ended, and a new one was started.
        """
        return await self._operation(lambda runtime: runtime.read(path, max_bytes))

    async def list(self, path: str = ".") -> list[FileEntry]:
        """Entries of a folder, by name. Raises as `read_bytes`."""
        return await self._operation(lambda runtime: runtime.list(path))

    async def upload(self, archive: bytes, path: str = ".") -> None:
        """Unpack a tar archive, compressed or not, in a folder of the workspace; see `transfer.pack`.

        Raises:
            OSError: it can't be unpacked.
            ToolError: the sandbox had ended, and a new one was started.
        """
        request = Command(unpack_command(path), _TRANSFER, archive, {}, ".")
        done = await self._operation(lambda runtime: runtime.run(request))
        if done.exit_code != 0:
            raise OSError(EINVAL, f"the archive can't be unpacked: {last_line(done)}", path)

    async def download(self, path: str = ".", *, max_bytes: int = 64 << 20) -> bytes:
        """A file or folder as a tar archive. What is in it is the policy's: see `transfer.unpack`.

        Args:
            max_bytes: of the archive.

        Raises:
            OSError: it can't be read, or is larger.
            ToolError: the sandbox had ended, and a new one was started.
        """
        place = f".{uuid4().hex}.tar"
        request = Command(pack_command(path, place, max_bytes), _TRANSFER, b"", {}, ".")
        done = await self._operation(lambda runtime: runtime.run(request))
        if done.exit_code != 0:
            raise OSError(EINVAL, f"it can't be packed: {last_line(done)}", path)
        try:
            return await self._operation(lambda runtime: runtime.read(place, max_bytes))
        finally:
            remove = Command(f"rm -f {place}", _TRANSFER, b"", {}, ".")
            await self._operation(lambda runtime: runtime.run(remove))

    async def _operation(self, operation: Callable[[Runtime], Awaitable[T]]) -> T:
        try:
            return await operation(self._living())
        except SandboxEnded as ended:
            await self._renew()
            raise ToolError(
                f"{ended.reason}; it was started anew: files that were written, and variables, are lost"
            ) from None

    def _living(self) -> Runtime:
        if self._runtime is None:
            raise ResourceDied("the sandbox has been stopped")
        return self._runtime

    def _limit(self, timeout: float | None) -> float:
        return self._settings.timeout if timeout is None else max(timeout, 0.0)

    async def _renew(self) -> None:
        """Take another one in the place of the one that has ended.

        Raises:
            ResourceDied: there is none to be had.
        """
        async with self._renewing:
            runtime = self._living()
            if runtime.alive:
                return  # somebody else's call has met it first
            await runtime.kill()
            try:
                await self._begin()
                await self._write_files()
            except Exception as error:
                raise ResourceDied(f"the sandbox ended, and another one can't be had: {error}") from None

    async def _become(self, image: str) -> None:
        check_settings(replace(self._settings, image=image))
        await self.stop()
        self._image = image
        await self._begin()

    async def _begin(self) -> None:
        self._runtime = await self._provider.start(replace(self._settings, image=self._image))

    async def _write_files(self) -> None:
        for path, content in self._files.items():
            await self._living().write(path, content)
        if self._prepare is not None:
            limit = self._settings.timeout
            done = await self._living().run(Command(self._prepare, limit, b"", {}, "."))
            if done.exit_code != 0:
                raise ToolError(f"the sandbox could not be prepared by {self._prepare!r}: {done}")


def _bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
