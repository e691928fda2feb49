"""The provider `process`: no isolation at all, for code that is trusted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings

from agentfly.errors import ConfigError, StartFailed
from agentfly.resources.sandbox.inside.frames import Value
from agentfly.resources.sandbox.link import Link, LinkClosed
from agentfly.resources.sandbox.program import BOOT, bundle
from agentfly.resources.sandbox.provider import Capability, Check
from agentfly.resources.sandbox.remote import RemoteRuntime
from agentfly.resources.sandbox.settings import SandboxSettings

_START_TIMEOUT = 60.0


class ProcessProvider:
    """Runs code as this user, who can do whatever this user can. Only for code that is trusted.

    Time and output are limited, and the memory of each single process. A process that makes itself a daemon
    outlives the sandbox.
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Provider`."""
        return frozenset({"python", "network", "packages"})

    def check(self, settings: SandboxSettings) -> None:
        """See `Provider`."""
        if settings.require:
            raise ConfigError(f"require: the provider 'process' can't limit {settings.require[0]}")
        if settings.mounts:
            raise ConfigError("mounts: the provider 'process' sees the whole machine, nothing can be shown to it")
        if settings.python is not None:
            raise ConfigError("python: the provider 'process' runs the Python that runs it")

    async def start(self, settings: SandboxSettings) -> RemoteRuntime:
        """See `Provider`."""
        warnings.warn("sandboxes of the provider 'process' isolate nothing: only for code you trust", stacklevel=2)
        folder = tempfile.mkdtemp(prefix="agentfly-process-")
        ours, theirs = socket.socketpair()
        program = os.memfd_create("program")
        os.pwrite(program, bundle(True), 0)
        command = [sys.executable, "-c", BOOT, str(theirs.fileno()), str(program)]
        environment = {**os.environ, **settings.env, "HOME": folder, "TMPDIR": folder, "PWD": folder}
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), program),
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise StartFailed(f"Python could not be run: {error}") from None
        finally:
            theirs.close()
            os.close(program)
        tree = ProcessTree(process, folder)
        link: Link | None = None
        try:
            link = await Link.open(ours)
            link.send(_settings_message(settings, folder))
            await asyncio.wait_for(asyncio.shield(link.ready), _START_TIMEOUT)
        except BaseException as error:
            (link or ours).close()
            await tree.kill()
            if isinstance(error, (LinkClosed, OSError)):
                raise StartFailed(f"the process did not start: {error!r}") from None
            raise
        return RemoteRuntime(tree, link, settings.disk)

    def checks(self) -> list[Check]:
        """See `Provider`."""
        return [Check("isolation", None, "none: for trusted code only", needed=False)]


class ProcessTree:
    """The controller, which ends what it has started when its socket is closed.

    Args:
        process: at the head of a session of its own.
        folder: the workspace.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: str) -> None:
        self._process = process
        self._folder = folder
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watched = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._watched, self._seen)

    def oom_kills(self) -> int:
        """Nobody counts here."""
        return 0

    async def kill(self) -> None:
        """End it; the workspace goes with it."""
        _, waiting = await asyncio.wait([self._ended], timeout=2.0)
        if waiting:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.wait([self._ended])
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _seen(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        self._process.wait()
        if not self._ended.done():
            self._ended.set_result(None)


def _settings_message(settings: SandboxSettings, folder: str) -> dict[str, Value]:
    """The first message to the controller; counts of processes and files would be the whole user's."""
    return {
        "memory": settings.memory,
        "watch_memory": 0,
        "processes": 0,
        "file_size": settings.disk,
        "max_files": 0,
        "max_output": settings.max_output,
        "packages": "",
        "folders": folder,
    }
