"""One container: commands by `exec`, files by archives. The SDK blocks, so each call has a thread."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from shlex import quote
from typing import Any, TypeVar
from uuid import uuid4

import requests
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

from agentfly.errors import ResourceDied, first_line
from agentfly.resources.sandbox.link import LinkClosed

T = TypeVar("T")
_log = logging.getLogger(__name__)
FAULTS = (DockerException, requests.exceptions.RequestException, OSError)
_AT_ONCE = 64
_CONFLICT = 409


class DockerMachine:
    """A running container.

    Args:
        container: of the SDK.
        user: who runs commands in it.
    """

    def __init__(self, container: Container, user: str | None) -> None:
        self._container = container
        self._user = user or ""
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="docker")

    async def execute(self, command: str, timeout: float) -> tuple[int, str]:
        """See `Machine`. The engine can't end a command, so the command notes who is to be ended."""
        note = f"/tmp/.agentfly-pid-{uuid4().hex[:12]}"
        started = f"trap 'kill -- -$!' TERM; setsid sh -c {quote(command)} & echo $$ > {note}"
        ending = f"{started}; wait $!; code=$?; rm {note}; exit $code"
        running = asyncio.ensure_future(self._in_thread(lambda: self._execute(ending)))
        try:
            async with asyncio.timeout(timeout or None):
                return await asyncio.shield(running)
        except (asyncio.CancelledError, TimeoutError):
            with contextlib.suppress(LinkClosed, ResourceDied):
                await self._in_thread(lambda: self._execute(f"kill $(cat {note})"))
                await running
            raise

    async def put(self, path: str, data: bytes) -> None:
        """See `Machine`."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            entry = tarfile.TarInfo(posixpath.basename(path))
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
        folder = posixpath.dirname(path)
        await self._in_thread(lambda: self._container.put_archive(folder, packed.getvalue()))

    async def probe(self) -> None:
        """See `Machine`."""
        await self._in_thread(self._container.reload)
        if self._container.status != "running":
            raise LinkClosed

    def oom_kills(self) -> int:
        """The engine tells only of the first process."""
        return 0

    async def kill(self) -> None:
        """Remove it; that it is gone already is as well."""
        await asyncio.shield(asyncio.ensure_future(self._remove()))

    async def _remove(self) -> None:
        try:
            await self._in_thread(lambda: self._container.remove(force=True, v=True))
        except LinkClosed:
            pass
        except ResourceDied as error:
            _log.warning("container %s could not be removed: %s", self._container.short_id, first_line(error))
        self._threads.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def told() -> T:
            with self._errors():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, told)

    def _execute(self, command: str) -> tuple[int, str]:
        api: Any = self._container.client.api
        made = api.exec_create(self._container.id, ["sh", "-c", command], user=self._user)["Id"]
        output, _ = api.exec_start(made, demux=True)
        code = api.exec_inspect(made)["ExitCode"]
        return (1 if code is None else int(code)), (output or b"").decode("utf-8", "replace")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """What the SDK raises: a container that is gone or has ended is a sandbox's end; else the engine failed."""
        try:
            yield
        except NotFound:
            raise LinkClosed from None
        except APIError as error:
            if error.status_code == _CONFLICT:
                raise LinkClosed from None
            raise ResourceDied(f"container {self._container.short_id}: {first_line(error)}") from None
        except FAULTS as error:
            raise ResourceDied(f"the Docker engine can't be reached: {first_line(error)}") from None
