"""Processes of this machine that are a sandbox together: started in a folder of their own, gone when that is said."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from agentfly.errors import StartFailed
from agentfly.resources.sandbox.bubblewrap.cgroups import Group, GroupLimits
from agentfly.resources.sandbox.bubblewrap.limiting import Cgroups, new_group
from agentfly.resources.sandbox.link import Link, LinkClosed
from agentfly.resources.sandbox.owners import is_dead, this_process
from agentfly.resources.sandbox.program import bundle, first_message
from agentfly.resources.sandbox.remote import RemoteRuntime
from agentfly.resources.sandbox.settings import SandboxSettings

MARK = "AGENTFLY_SANDBOX"
# By the controller of cgroups that it takes.
GROUP_LIMITS = {"memory": "memory", "cpus": "cpu", "processes": "pids"}
_START_TIMEOUT = 60.0
_FOLDER = "agentfly-process-"
_SWEEPS = 100
_OWN_PROCESSES = 8
_OWN_MEMORY = 32 << 20


@dataclass(frozen=True)
class Launch:
    """How the program inside is started.

    Attributes:
        command: given the workspace, its end of the socket and a descriptor of the bundle (both inherited).
        env: given the workspace.
        compiled: whether the Python inside is of this one's version.
        owner: of the workspace; None is this user.
    """

    command: Callable[[str, int, int], Sequence[str]]
    env: Callable[[str], Mapping[str, str]]
    compiled: bool = True
    owner: int | None = None


async def launch_tree(settings: SandboxSettings, cgroups: Cgroups, launch: Launch) -> RemoteRuntime:
    """Start the program, and return when it says that it is ready.

    Raises:
        StartFailed: it did not start.
    """
    missing = [name for name in settings.require if GROUP_LIMITS.get(name) not in cgroups.controllers]
    if missing:
        raise StartFailed(f"the spec requires a limit of {missing[0]}, which can't hold here ({cgroups.reason})")
    await asyncio.to_thread(_remove_folders_of_the_dead)
    tree, ours = _spawn(settings, cgroups, launch)
    link: Link | None = None
    try:
        link = await Link.open(ours)
        link.send(first_message(settings, [tree.folder]))
        await asyncio.wait_for(asyncio.shield(link.ready), _START_TIMEOUT)
    except BaseException as error:
        (link or ours).close()
        said = tree.said()
        await tree.kill()
        if isinstance(error, (LinkClosed, OSError)):
            raise StartFailed(f"the program inside did not start: {said or repr(error)}") from None
        raise
    return RemoteRuntime(tree, link, settings.disk)


class ProcessTree:
    """The controller, and all that was started from it.

    Args:
        process: at the head of a session of its own.
        folder: the workspace.
        mark: what all of its processes have in their environment.
        group: the cgroup that they are in, where there is one.
        stderr: a descriptor of what the first process writes there.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], folder: str, mark: str, group: Group | None, stderr: int
    ) -> None:
        self.folder = folder
        self._stderr: int | None = stderr
        self._process = process
        self._mark = f"{MARK}={mark}".encode()
        self._group = group
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watched = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._watched, self._seen)

    def oom_kills(self) -> int:
        """Processes that the kernel has killed because memory ran out."""
        return 0 if self._group is None else self._group.oom_kills()

    def said(self) -> str:
        """The last of what the first process wrote to its standard error."""
        if self._stderr is None:
            return ""
        return os.pread(self._stderr, 2000, 0).decode(errors="replace").strip()[-500:]

    async def kill(self) -> None:
        """End all; the workspace goes with it."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.shield(self._ended)
        if self._stderr is not None:
            os.close(self._stderr)
            self._stderr = None
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


def _spawn(settings: SandboxSettings, cgroups: Cgroups, launch: Launch) -> tuple[ProcessTree, socket.socket]:
    """Start the program; it does nothing before it has had its first message.

    Raises:
        StartFailed: it can't be started.
    """
    folder, mark = tempfile.mkdtemp(prefix=f"{_FOLDER}{this_process()}-"), uuid4().hex
    ours, theirs = socket.socketpair()
    program, stderr = os.memfd_create("program"), os.memfd_create("stderr")
    group: Group | None = None
    process: subprocess.Popen[bytes] | None = None
    try:
        if launch.owner is not None:
            os.chown(folder, launch.owner, launch.owner)
        os.pwrite(program, bundle(launch.compiled), 0)
        group = _group(settings, cgroups)
        process = subprocess.Popen(
            launch.command(folder, theirs.fileno(), program),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=(theirs.fileno(), program),
            cwd=folder,
            env={**launch.env(folder), MARK: mark},
            start_new_session=True,
        )
        if group is not None:
            group.add(process.pid)
    except OSError as error:
        ours.close()
        os.close(stderr)
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
    return ProcessTree(process, folder, mark, group, stderr), ours


def _group(settings: SandboxSettings, cgroups: Cgroups) -> Group | None:
    if not cgroups.places:
        return None
    group = new_group(cgroups.places)
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
