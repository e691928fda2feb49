"""Starting a sandbox: everything that it inherits, and the order of things until it is ready."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

from agentfly.errors import ConfigError, StartFailed
from agentfly.resources.sandbox.bubblewrap.cgroups import Group, GroupLimits
from agentfly.resources.sandbox.bubblewrap.command import (
    ETC_FILES,
    PACKAGES,
    TMP,
    WORKSPACE,
    Bind,
    bubblewrap_command,
    variables,
)
from agentfly.resources.sandbox.bubblewrap.limiting import Cgroups, new_group
from agentfly.resources.sandbox.bubblewrap.machine import (
    bwrap_path,
    drop_to,
    package_folders,
    python_for_inside,
    reachable,
)
from agentfly.resources.sandbox.bubblewrap.process import BubblewrapTree
from agentfly.resources.sandbox.bubblewrap.seccomp import filter_program
from agentfly.resources.sandbox.inside.frames import Value
from agentfly.resources.sandbox.link import Link, LinkClosed
from agentfly.resources.sandbox.program import BOOT, bundle, first_message
from agentfly.resources.sandbox.remote import RemoteRuntime
from agentfly.resources.sandbox.settings import SandboxSettings

_START_TIMEOUT = 60.0
# Bubblewrap and the program that looks after the sandbox are in its cgroup as well.
_OWN_PROCESSES = 8
_OWN_MEMORY = 32 << 20


async def launch(settings: SandboxSettings, cgroups: Cgroups) -> RemoteRuntime:
    """Start a sandbox and wait until it says that it is ready.

    Killing bubblewrap while it sets up can leave a live process behind. That one does nothing before it has had its
    first message, and ends when it finds the socket closed: so nothing of ours ever runs unwatched.

    Raises:
        ConfigError: this machine lacks something.
        StartFailed: with what bubblewrap said.
    """
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as inherited:
        inherited.callback(theirs.close)
        inheritance = Inheritance(inherited, theirs.fileno())
        group: Group | None = None
        try:
            command, packages = _command(settings, cgroups, inheritance)
            group = _group(settings, cgroups)
            process = inheritance.spawn(command)
        except BaseException:
            ours.close()
            if group is not None:
                group.try_remove()
            raise
        tree = BubblewrapTree(process, group)
        info = os.fdopen(os.dup(inheritance.info), "rb", 0)
        said = os.dup(inheritance.stderr)
    link: Link | None = None
    try:
        link = await Link.open(ours)
        watched = "memory" not in cgroups.controllers
        first = first_message(settings, [WORKSPACE, TMP], packages=packages, own_counts=True, watch_memory=watched)
        await asyncio.wait_for(_get_ready(tree, link, info.fileno(), first), _START_TIMEOUT)
    except BaseException as error:
        (link or ours).close()
        await tree.kill()
        if isinstance(error, (LinkClosed, OSError, ValueError, LookupError)):
            reason = os.pread(said, 2000, 0).decode(errors="replace").strip() or repr(error)
            raise StartFailed(f"the sandbox did not start: {reason}{_advice(reason)}") from None
        raise
    finally:
        info.close()
        os.close(said)
    return RemoteRuntime(tree, link, settings.disk)


async def _get_ready(tree: BubblewrapTree, link: Link, info: int, first: Mapping[str, Value]) -> None:
    tree.adopt(await _child(info))
    link.send(first)
    await link.ready


async def _child(info: int) -> int:
    """The id of the first process inside, as soon as bubblewrap has told it."""
    loop = asyncio.get_running_loop()
    text = b""
    while True:
        readable = loop.create_future()
        loop.add_reader(info, _settle, readable)
        try:
            await readable
        finally:
            loop.remove_reader(info)
        more = os.read(info, 4096)
        text += more
        try:
            return int(json.loads(text)["child-pid"])
        except json.JSONDecodeError:
            if not more:
                raise


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Inheritance:
    """The descriptors that bubblewrap and the program inside get.

    Args:
        closing: closes them here.
        host: the program's end of the socket.
    """

    def __init__(self, closing: contextlib.ExitStack, host: int) -> None:
        self._closing = closing
        self._passed = [host]
        self.host = host
        self.info, self.info_writer = os.pipe()
        closing.callback(os.close, self.info)
        self._keep(self.info_writer)
        self.stderr = os.memfd_create("stderr")
        closing.callback(os.close, self.stderr)

    def data(self, name: str, content: bytes) -> int:
        """A descriptor that this can be read from."""
        descriptor = self._keep(os.memfd_create(name))
        os.pwrite(descriptor, content, 0)
        return descriptor

    def spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start bubblewrap.

        Raises:
            StartFailed: it can't be.
        """
        uid = drop_to()
        identity: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        program = command[0]
        if not reachable(program):
            program = f"/proc/self/fd/{self._keep(os.open(program, os.O_PATH))}"
        try:
            # Not by the event loop: uvloop, which Ray's actors run on, can't start a process as another user. And
            # not in another thread: a sandbox dies with the thread that started it.
            return subprocess.Popen(
                command,
                executable=program,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.stderr,
                pass_fds=self._passed,
                cwd="/",
                env={},
                start_new_session=True,
                **identity,
            )
        except OSError as error:
            raise StartFailed(f"bubblewrap could not be run: {error}") from None

    def _keep(self, descriptor: int) -> int:
        self._closing.callback(os.close, descriptor)
        self._passed.append(descriptor)
        return descriptor


def _command(
    settings: SandboxSettings, cgroups: Cgroups, inheritance: Inheritance
) -> tuple[list[str], tuple[str, ...]]:
    """Bubblewrap's arguments, and where the packages are inside."""
    python = python_for_inside(settings.python)
    outside = package_folders(python) if settings.packages else ()
    packages = tuple(f"{PACKAGES}/{number}" for number in range(len(outside)))
    shown = [*((folder, folder) for folder in python.folders), *zip(outside, packages, strict=True)]
    shown += [(outside, inside) for inside, outside in settings.mounts.items()]
    counted = "memory" in cgroups.controllers
    program_fd = inheritance.data("program", bundle(python.ours))
    command = bubblewrap_command(
        bwrap=bwrap_path(),
        program=[python.executable, "-I", "-S", "-c", BOOT, str(inheritance.host), str(program_fd)],
        binds=[_bind(outside, inside) for outside, inside in shown],
        env=variables(os.path.dirname(python.executable), settings.env, packages, settings.cpus),
        disk=settings.disk,
        network=settings.network,
        seccomp_fd=inheritance.data("seccomp", filter_program(counted)),
        info_fd=inheritance.info_writer,
        etc_fds={path: inheritance.data("etc", content) for path, content in ETC_FILES.items()},
    )
    return command, packages


def _bind(outside: str, inside: str) -> Bind:
    """Show a file or folder of the host.

    Raises:
        ConfigError: it isn't there, or can't be reached.
    """
    try:
        if reachable(outside):
            return Bind(outside, inside)
    except OSError as error:
        raise ConfigError(f"{outside} can't be shown in a sandbox: {error.strerror}") from None
    raise ConfigError(f"{outside} can't be shown in a sandbox: others may not enter a folder above it")


def _group(settings: SandboxSettings, cgroups: Cgroups) -> Group | None:
    """The sandbox's cgroup, where one can be made."""
    if not cgroups.places:
        return None
    # Files of the workspace and of /tmp lie in memory, and have limits of their own.
    memory = settings.memory + 2 * settings.disk + _OWN_MEMORY
    limits = GroupLimits(memory, settings.cpus, settings.max_processes + _OWN_PROCESSES)
    try:
        group = new_group(cgroups.places)
    except OSError as error:
        raise StartFailed(f"a cgroup for the sandbox could not be made: {error}") from None
    try:
        group.limit(limits)
    except OSError as error:
        group.try_remove()
        raise StartFailed(f"the sandbox could not be limited: {error}") from None
    return group


def _advice(reason: str) -> str:
    if "user namespace" in reason or "No permissions to create" in reason or "setting up uid map" in reason:
        return "; this machine forbids user namespaces (see `agentfly doctor`)"
    return ""
