"""One running sandbox: started, spoken to over a private socket, killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agentfly.errors import StartFailed
from agentfly.resources.sandbox.bubblewrap.command import bubblewrap_command
from agentfly.resources.sandbox.bubblewrap.machine import bwrap_binary, drop_to, interpreter
from agentfly.resources.sandbox.bubblewrap.seccomp import filter_program

if TYPE_CHECKING:
    from agentfly.resources.sandbox.sandbox import SandboxSettings

_PROGRAM = Path(__file__).parent / "inside.py"
_MAX_FRAME = 32 << 20
_START_TIMEOUT = 30.0


class BubblewrapProcess:
    """A sandbox that has said that it is ready. Make it with `start`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._first_inside: int | None = None
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, settings: SandboxSettings) -> Self:
        """Start a sandbox and wait until it is ready.

        Raises:
            StartFailed: with what bubblewrap said.
            ConfigError: this machine lacks something.
        """
        # Killing bubblewrap while it sets up can leave a live tree behind, so a start is never cut short: whoever
        # is cancelled meanwhile leaves a sandbox that is ended when it has become ready.
        starting = asyncio.ensure_future(cls._start(settings))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_end_unwanted)
            raise

    @classmethod
    async def _start(cls, settings: SandboxSettings) -> Self:
        ours, theirs = socket.socketpair()
        program, seccomp = _data_fd("program", _PROGRAM.read_bytes()), _data_fd("seccomp", filter_program())
        info_reader, info = os.pipe()
        inherited = (theirs.fileno(), program, seccomp, info)
        limits = json.dumps(
            {
                "memory": settings.memory,
                "disk": settings.disk,
                "max_processes": settings.max_processes,
                "max_output": settings.max_output,
            }
        )
        command = bubblewrap_command(
            bwrap=bwrap_binary(),
            interpreter=interpreter(),
            disk=settings.disk,
            network=settings.network,
            env=settings.env,
            mounts=settings.mounts,
            program_fd=program,
            seccomp_fd=seccomp,
            info_fd=info,
            arguments=(str(theirs.fileno()), limits),
        )
        uid = drop_to()
        identity: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        try:
            # Not by the event loop: uvloop, which Ray's actors run on, can't start a process as another user. And
            # not in another thread: a sandbox dies with the thread that started it.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=inherited,
                cwd="/",
                env={},
                start_new_session=True,
                **identity,
            )
        except OSError as error:
            ours.close()
            os.close(info_reader)
            raise StartFailed(f"bubblewrap could not be run: {error}") from None
        finally:
            theirs.close()
            for descriptor in (program, seccomp, info):
                os.close(descriptor)
        reader, writer = await asyncio.open_connection(sock=ours, limit=_MAX_FRAME)
        sandbox = cls(process, reader, writer)
        try:
            await asyncio.wait_for(sandbox._read(), _START_TIMEOUT)
            sandbox._first_inside = json.loads(os.read(info_reader, 4096))["child-pid"]
        except (TimeoutError, EOFError, ConnectionError, ValueError, LookupError) as error:
            sandbox._end()
            assert process.stderr is not None
            said = (await asyncio.to_thread(process.stderr.read, 2000)).decode(errors="replace").strip()
            await sandbox.kill()
            raise StartFailed(f"the sandbox did not start: {said or type(error).__name__}") from None
        finally:
            os.close(info_reader)
        return sandbox

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            EOFError, ConnectionError: the sandbox is gone.
            ValueError: what came is no answer.
        """
        frame = json.dumps(request).encode()
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        await self._writer.drain()
        return await self._read()

    async def kill(self) -> None:
        """End every process inside, and return when they have ended."""
        self._end()
        await asyncio.to_thread(self._process.wait)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _end(self) -> None:
        self._writer.close()
        if not self.alive:
            return
        try:
            if self._first_inside is None:
                self._process.kill()
            else:
                # The first process of the inner namespace takes all others along, and bubblewrap collects it;
                # killed itself, it would leave it to whoever adopts orphans.
                os.kill(self._first_inside, signal.SIGKILL)
        except ProcessLookupError:
            pass

    async def _read(self) -> dict[str, Any]:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        if size > _MAX_FRAME:
            raise ValueError(f"a frame of {size} bytes")
        answer = json.loads(await self._reader.readexactly(size))
        if not isinstance(answer, dict):
            raise ValueError("no answer")
        return answer


def _end_unwanted(starting: asyncio.Future[Any]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result()._end()
        asyncio.get_running_loop().run_in_executor(None, starting.result()._process.wait)


def _data_fd(name: str, content: bytes) -> int:
    descriptor = os.memfd_create(name)
    os.pwrite(descriptor, content, 0)
    return descriptor
