"""Small resources for tests; they run in hosts on Ray."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from agentfly.errors import ModelError
from agentfly.resources import Resource


class Counter(Resource):
    """Counts calls since its last reset."""

    def __init__(self, start_at: int = 0, label: str = "") -> None:
        self.first = start_at
        self.label = label
        self.value = start_at
        self.resets = 0
        self.given: int | None = None
        self.setups = 0

    async def setup(self, given: int | None = None) -> None:
        self.given = given
        self.setups += 1

    async def reset(self) -> None:
        self.value = self.first
        self.resets += 1
        self.given = None

    async def add(self, number: int = 1) -> int:
        """Add and return the sum."""
        self.value += number
        return self.value

    async def state(self) -> tuple[str, int | None, int, int]:
        """Label, what setup got, how often it ran, resets."""
        return self.label, self.given, self.setups, self.resets

    async def pid(self) -> int:
        """Of the host."""
        return os.getpid()

    async def identity(self) -> int:
        """Of this very object in its process."""
        return id(self)

    def thread(self) -> str:
        """Name of the thread that a plain method runs in."""
        return threading.current_thread().name

    async def count_to(self, end: int) -> AsyncIterator[int]:
        """Stream numbers; -1 raises after three."""
        for number in range(end if end >= 0 else 3):
            yield number
        if end < 0:
            raise KeyError("the stream broke")

    async def fail(self) -> None:
        """Raise an ordinary error."""
        raise LookupError("nothing there")

    async def model_error(self) -> None:
        """Raise what an engine raises."""
        raise ModelError("out of memory")

    async def unsendable(self) -> object:
        """Return what can't be pickled."""
        return threading.Lock()

    async def raise_unsendable(self) -> None:
        """Raise what can't be pickled."""
        error = ValueError("with a lock")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    async def hang(self, path: str = "") -> None:
        """Never return; notes its cancellation in a file."""
        try:
            await asyncio.Event().wait()
        finally:
            if path:
                Path(path).write_text("cancelled")  # noqa: ASYNC240

    async def block(self) -> None:
        """Hold the event loop of the host for ever."""
        threading.Event().wait()

    async def die(self) -> None:
        """Kill the host."""
        os._exit(1)


class Recorder(Resource):
    """Writes its life down in a folder, a file for each event."""

    def __init__(self, folder: str, fail_start: bool = False, fail_reset: bool = False) -> None:
        self.folder = Path(folder)
        self.fail_start = fail_start
        self.fail_reset = fail_reset
        self.version = 0
        self.well = True

    def note(self, event: str) -> None:
        """Add an event."""
        (self.folder / f"{event}-{os.getpid()}-{id(self)}-{len(list(self.folder.iterdir()))}").touch()

    async def start(self) -> None:
        self.note("start")
        if self.fail_start:
            raise OSError("no such device")

    async def reset(self) -> None:
        self.note("reset")
        if self.fail_reset:
            raise OSError("it is stuck")

    async def stop(self) -> None:
        self.note("stop")

    async def healthy(self) -> bool:
        return self.well

    async def sicken(self) -> None:
        """From now on not healthy."""
        self.well = False

    async def set_version(self, version: int, payload: bytes = b"") -> int:
        """Take new weights."""
        self.version = version
        return len(payload)

    async def get_version(self) -> int:
        """Of the weights."""
        return self.version


class Child(Resource):
    """Has a process of its own."""

    async def start(self) -> None:
        self.process = subprocess.Popen(["sleep", "600"])

    async def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    async def pids(self) -> tuple[int, int]:
        """Of the host and of the child."""
        return os.getpid(), self.process.pid


def events(folder: Path, kind: str) -> int:
    """How often an event of the kind was noted."""
    return sum(path.name.startswith(f"{kind}-") for path in folder.iterdir())
