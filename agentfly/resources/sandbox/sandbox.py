"""The sandbox as a resource: what tools hold."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentfly.errors import ConfigError, ResourceDied
from agentfly.resources.resource import Resource
from agentfly.resources.sandbox.bubblewrap.process import BubblewrapProcess
from agentfly.resources.sandbox.results import CommandResult, FileEntry, PythonResult

# What a call may take beyond its own limit: interrupting, killing, starting an interpreter anew.
_GRACE = 10.0


@dataclass(frozen=True)
class SandboxSettings:
    """The part of a `SandboxSpec` that a sandbox itself needs; sizes in bytes, times in seconds."""

    memory: int
    disk: int
    max_processes: int
    max_output: int
    timeout: float
    network: bool
    env: Mapping[str, str]
    mounts: Mapping[str, str]


class Sandbox(Resource):
    """A place where a model's code runs: a workspace, a shell, and a Python interpreter that lives on.

    Everything, reading and writing files included, is done by a process inside; the host never follows a path
    that code inside could have prepared. Calls of one sandbox run one after the other.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._process: BubblewrapProcess | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        self._process = await BubblewrapProcess.start(self._settings)

    async def setup(self, files: Mapping[str, str | bytes] | None = None) -> None:
        """Write the files that a rollout begins with, by their paths in the workspace."""
        for path, content in (files or {}).items():
            await self.write(path, content)

    async def reset(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.kill()

    async def healthy(self) -> bool:
        return self._process is not None and self._process.alive

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str = ".",
    ) -> CommandResult:
        """Run a shell command in the workspace.

        Args:
            timeout: seconds; the sandbox's own limit when None.
            env: variables beside the sandbox's.
            cwd: folder, relative to the workspace.

        Raises:
            ResourceDied: the sandbox is dead.
            OSError: there is no such folder.
        """
        limit = timeout or self._settings.timeout
        request = {"command": command, "timeout": limit, "stdin": stdin, "env": dict(env or {}), "cwd": cwd}
        return CommandResult(**await self._ask("run", request, limit))

    async def run_python(self, code: str, *, timeout: float | None = None) -> PythonResult:
        """Run Python in the interpreter that lives on between calls.

        At the limit the code is interrupted, which keeps its variables; code that doesn't heed that is killed,
        and a new interpreter started.

        Args:
            timeout: seconds; the sandbox's own limit when None.

        Raises:
            ResourceDied: the sandbox is dead.
        """
        limit = timeout or self._settings.timeout
        return PythonResult(**await self._ask("python", {"code": code, "timeout": limit}, limit))

    async def write(self, path: str, content: str | bytes) -> None:
        """Write a file in the workspace; its folders are made.

        Raises:
            OSError: it can't be written.
        """
        data = content.encode() if isinstance(content, str) else content
        await self._ask("write", {"path": path, "data": base64.b64encode(data).decode()})

    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> str:
        """Text of a file, what isn't UTF-8 replaced, cut at `max_bytes`.

        Raises:
            OSError: it can't be read.
        """
        return (await self.read_bytes(path, max_bytes=max_bytes)).decode(errors="replace")

    async def read_bytes(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        """Content of a file, cut at `max_bytes`.

        Raises:
            OSError: it can't be read.
        """
        answer = await self._ask("read", {"path": path, "max_bytes": max_bytes})
        return base64.b64decode(answer["data"])

    async def list(self, path: str = ".") -> list[FileEntry]:
        """Entries of a folder, by name.

        Raises:
            OSError: it can't be read.
        """
        return [FileEntry(**entry) for entry in (await self._ask("list", {"path": path}))["entries"]]

    async def _ask(self, operation: str, request: Mapping[str, Any], limit: float = 30.0) -> dict[str, Any]:
        async with self._turn:
            process = self._process
            if process is None:
                raise ResourceDied("the sandbox has been stopped")
            try:
                answer = await asyncio.wait_for(process.ask({"op": operation, **request}), limit + _GRACE)
            except BaseException as error:
                # The answer to a call that was left could be taken for that of the next one.
                await process.kill()
                if isinstance(error, (TimeoutError, EOFError, ConnectionError, ValueError)):
                    raise ResourceDied(f"the sandbox died during {operation} ({type(error).__name__})") from None
                raise
        if "os_error" in answer:
            number, text = answer["os_error"]
            raise OSError(number, text)
        if "usage_error" in answer:
            raise ConfigError(str(answer["usage_error"]))
        return answer
