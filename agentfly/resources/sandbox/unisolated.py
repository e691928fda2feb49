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
from pathlib import Path
from uuid import uuid4

from agentfly.errors import ConfigError, StartFailed
from agentfly.resources.sandbox.bubblewrap.cgroups import Group, GroupLimits, make_group
from agentfly.resources.sandbox.bubblewrap.limiting import Cgroups, new_label, own_cgroups
from agentfly.resources.sandbox.inside.frames import Value
from agentfly.resources.sandbox.link import Link, LinkClosed
from agentfly.resources.sandbox.owners import is_dead, this_process
from agentfly.resources.sandbox.program import BOOT, bundle
from agentfly.resources.sandbox.provider import Capability, Check
from agentfly.resources.sandbox.remote import RemoteRuntime
from agentfly.resources.sandbox.settings import SandboxSettings

_START_TIMEOUT = 60.0
_FOLDER = "agentfly-process-"
_MARK = "AGENTFLY_SANDBOX"
_SWEEPS = 100
# By the controller of cgroups that it takes.
_LIMITS = {"memory": "memory", "cpus": "cpu", "processes": "pids"}
_OWN_PROCESSES = 4
_OWN_MEMORY = 32 << 20


class ProcessProvider:
    """Runs code as this user, who can do whatever this user can. Only for code that is trusted.

    Time and output are limited, and the memory of each single process; of all together where cgroups let us. What is
    left running ends with the sandbox.
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Provider`."""
        return frozenset({"python", "network", "packages"})

    def check(self, settings: SandboxSettings) -> None:
        """See `Provider`."""
        never = [name for name in settings.require if name not in _LIMITS]
        if never:
            raise ConfigError(f"require: the provider 'process' can't limit {never[0]}")
        if settings.mounts:
            raise ConfigError("mounts: the provider 'process' sees the whole machine, nothing can be shown to it")
        if settings.python is not None:
            raise ConfigError("python: the provider 'process' runs the Python that runs it")
        if settings.options:
            raise ConfigError(
                f"provider_options: the provider 'process' has no option {next(iter(settings.options))!r}"
            )

    async def start(self, settings: SandboxSettings) -> RemoteRuntime:
        """See `Provider`."""
        warnings.warn("sandboxes of the provider 'process' isolate nothing: only for code you trust", stacklevel=2)
        cgroups = own_cgroups()
        missing = [name for name in settings.require if _LIMITS[name] not in cgroups.controllers]
        if missing:
            raise StartFailed(f"the spec requires a limit of {missing[0]}, which can't hold here ({cgroups.reason})")
        await asyncio.to_thread(_remove_folders_of_the_dead)
        tree, ours = _spawn(settings, cgroups)
        link: Link | None = None
        try:
            link = await Link.open(ours)
            link.send(_settings_message(settings, tree.folder))
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
    """The controller, and all that was started from it.

    Args:
        process: at the head of a session of its own.
        folder: the workspace.
        mark: what all of its processes have in their environment.
        group: the cgroup that they are in, where there is one.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: str, mark: str, group: Group | None) -> None:
        self.folder = folder
        self._process = process
        self._mark = f"{_MARK}={mark}".encode()
        self._group = group
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watched = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._watched, self._seen)

    def oom_kills(self) -> int:
        """Processes that the kernel has killed because memory ran out."""
        return 0 if self._group is None else self._group.oom_kills()

    async def kill(self) -> None:
        """End all; the workspace goes with it."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.shield(self._ended)
        await asyncio.shield(asyncio.ensure_future(self._clean_up()))

    async def _clean_up(self) -> None:
        if self._group is not None:
            self._group.kill()
        await asyncio.to_thread(_sweep, self._mark)
        if self._group is not None:
            await self._group.remove()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    def _seen(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        self._process.wait()
        if not self._ended.done():
            self._ended.set_result(None)


def _spawn(settings: SandboxSettings, cgroups: Cgroups) -> tuple[ProcessTree, socket.socket]:
    """Start the controller; it does nothing before it has had its first message.

    Raises:
        StartFailed: it can't be started.
    """
    folder, mark = tempfile.mkdtemp(prefix=f"{_FOLDER}{this_process()}-"), uuid4().hex
    ours, theirs = socket.socketpair()
    program = os.memfd_create("program")
    group: Group | None = None
    process: subprocess.Popen[bytes] | None = None
    try:
        os.pwrite(program, bundle(True), 0)
        group = _group(settings, cgroups)
        process = subprocess.Popen(
            [sys.executable, "-c", BOOT, str(theirs.fileno()), str(program)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), program),
            cwd=folder,
            env={**os.environ, **settings.env, "HOME": folder, "TMPDIR": folder, "PWD": folder, _MARK: mark},
            start_new_session=True,
        )
        if group is not None:
            group.add(process.pid)
    except OSError as error:
        ours.close()
        if process is not None:
            process.kill()
            process.wait()
        if group is not None:
            group.try_remove()
        shutil.rmtree(folder, ignore_errors=True)
        raise StartFailed(f"Python could not be run: {error}") from None
    finally:
        theirs.close()
        os.close(program)
    return ProcessTree(process, folder, mark, group), ours


def _group(settings: SandboxSettings, cgroups: Cgroups) -> Group | None:
    if not cgroups.places:
        return None
    group = make_group(cgroups.places, new_label())
    try:
        processes = settings.max_processes + _OWN_PROCESSES
        group.limit(GroupLimits(settings.memory + _OWN_MEMORY, settings.cpus, processes))
    except OSError:
        group.try_remove()
        raise
    return group


def _sweep(mark: bytes) -> None:
    """End every process that has this in the environment that it was started with."""
    for _ in range(_SWEEPS):
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_marked(pid, mark)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone
        return False


def _remove_folders_of_the_dead() -> None:
    """Workspaces of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*-*"):
        if is_dead(path.name.removeprefix(_FOLDER).rpartition("-")[0]):
            shutil.rmtree(path, ignore_errors=True)


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
