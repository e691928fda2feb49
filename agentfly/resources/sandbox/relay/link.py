"""The host's end: each request is one command."""

from __future__ import annotations

import asyncio
import base64
import posixpath
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Protocol
from uuid import uuid4

from agentfly.errors import StartFailed
from agentfly.resources.sandbox.inside.frames import HEADER, Frame, Value, decode, encode
from agentfly.resources.sandbox.link import LinkClosed
from agentfly.resources.sandbox.program import BOOT, bundle, first_message
from agentfly.resources.sandbox.relay import inside
from agentfly.resources.sandbox.settings import SandboxSettings

# A command's arguments may have 128 KiB in all.
_MOST_ARGUMENT = 1 << 16
_TRIES = 3
# Seconds that a command may take beyond what it asks for: an interpreter that starts, a slow service. What is slow
# there is nobody's fault inside.
GRACE = 60.0


class Machine(Protocol):
    """Where a sandbox runs, as its service lets us reach it."""

    async def execute(self, command: str, timeout: float) -> tuple[int, str]:
        """Run a shell command; cancelling this ends it.

        Returns:
            Its exit code, and what it wrote to its standard output.

        Raises:
            LinkClosed: the machine is gone.
            ResourceDied: it can't be reached.
        """
        ...

    async def put(self, path: str, data: bytes) -> None:
        """Write a file; its folder is there. Raises as `execute`."""
        ...

    async def probe(self) -> None:
        """Return when the machine is there, running or paused. Raises as `execute`."""
        ...


class CommandLink:
    """A link that asks by commands; it does what `RemoteRuntime` needs of a `Link`.

    Args:
        machine: where the program runs.
        folder: of the program.
        python: the command of its interpreter.
    """

    def __init__(self, machine: Machine, folder: str, python: str) -> None:
        self._machine = machine
        self._folder = folder
        self._ask = f"{quote(python)} -I {folder}/inside.py ask {folder}"
        # Others may hold the same program: its answers are told apart by these.
        self._prefix = uuid4().hex[:8]
        self._numbers = count(1)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ask(self, operation: str, fields: Mapping[str, Value]) -> Frame:
        """Send a request and wait for its answer; cancelling this cancels the work inside.

        Raises:
            LinkClosed: there will be none.
            ResourceDied: the machine can't be reached.
        """
        if self.closed.done():
            raise LinkClosed
        try:
            if operation == "ping":
                await self._machine.probe()
                return {}
            return await self._answer(encode({"id": f"{self._prefix}{next(self._numbers)}", "op": operation, **fields}))
        except LinkClosed:
            self.close()
            raise

    def close(self) -> None:
        """Ask no more."""
        if not self.closed.done():
            self.closed.set_result(None)

    async def _answer(self, request: bytes) -> Frame:
        for _ in range(_TRIES):
            argument = base64.b64encode(request).decode()
            if len(argument) > _MOST_ARGUMENT:
                path = f"{self._folder}/{uuid4().hex}"
                await self._machine.put(path, request)
                argument = f"@{path}"
            code, answer = await self._machine.execute(f"{self._ask} {argument}", 0.0)
            if code != 0:
                raise LinkClosed
            if answer:
                return decode(base64.b64decode(answer)[HEADER:])
            # A client of Docker's can lose what comes right behind its answer's header. Who asks again is told again.
        raise LinkClosed


async def open_link(machine: Machine, settings: SandboxSettings, *, workdir: str, python: str) -> CommandLink:
    """Bring our program into a machine, start it there, and return when it answers.

    Args:
        machine: it runs, and has Python.
        workdir: the workspace; made if it isn't there.
        python: the command of its interpreter.

    Raises:
        StartFailed: it has no Python, or the program does not start.
        LinkClosed, ResourceDied: as `Machine.execute`.
    """
    folder = f"/tmp/.agentfly-{uuid4().hex[:12]}"
    made = f"mkdir -p {folder} {quote(workdir)} && touch {folder}/starting && command -v {quote(python)}"
    code, said = await machine.execute(made, GRACE)
    if code != 0:
        raise StartFailed(f"the sandbox's image has no {python!r}, or {workdir!r} can't be made in it: {said.strip()}")
    folders = [workdir] if workdir == "/tmp" else [workdir, "/tmp"]
    files = {
        "inside.py": _program(),
        "bundle": bundle(False),
        "boot": BOOT.encode(),
        "settings": encode(first_message(settings, folders)),
    }
    for name, data in files.items():
        await machine.put(posixpath.join(folder, name), data)
    keep = f"{quote(python)} -I {folder}/inside.py keep {folder}"
    env = " ".join(quote(f"{name}={value}") for name, value in settings.env.items())
    started = f"cd {quote(workdir)} && (setsid env {env} {keep} > {folder}/log 2>&1 < /dev/null &)"
    link = CommandLink(machine, folder, python)
    await machine.execute(started, GRACE)
    try:
        await link.ask("list", {"path": "."})
    except LinkClosed:
        _, log = await machine.execute(f"cat {folder}/log", GRACE)
        raise StartFailed(f"the program inside did not start: {log.strip()[-500:]}") from None
    return link


@cache
def _program() -> bytes:
    return Path(inside.__file__).read_bytes()
