"""Cgroups: limits on all processes of a sandbox together, where this machine lets us set them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfly.resources.sandbox.bubblewrap.hierarchy import Hierarchy

_PERIOD = 100_000
_REMOVE_TRIES = 50


@dataclass(frozen=True)
class GroupLimits:
    """What all processes of a group may use together.

    Attributes:
        memory: bytes, files in memory included.
        cpus: of CPU time in each second.
        processes: and threads.
    """

    memory: int
    cpus: float
    processes: int


class Group:
    """One sandbox's cgroup: a folder in each hierarchy.

    Args:
        folders: already made, by the controllers that limit there.
    """

    def __init__(self, folders: dict[Path, frozenset[str]]) -> None:
        self._folders = folders
        self._events: int | None = None

    def limit(self, limits: GroupLimits) -> None:
        """Set the limits.

        Raises:
            OSError: the kernel refuses one.
        """
        for folder, controllers in self._folders.items():
            for name, value in _settings(folder, controllers, limits):
                (folder / name).write_text(value)
            for name, value in _swap(folder, controllers, limits):
                with contextlib.suppress(OSError):  # a kernel without swap accounting
                    (folder / name).write_text(value)
            if "memory" in controllers:
                name = "memory.events" if (folder / "memory.events").exists() else "memory.oom_control"
                self._events = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)

    def add(self, pid: int) -> None:
        """Move a process in.

        Raises:
            OSError: it may not be moved.
        """
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def oom_kills(self) -> int:
        """Processes that the kernel has killed here because memory ran out."""
        if self._events is None:
            return 0
        # The descriptor is kept: this is asked with every call.
        lines = os.pread(self._events, 4096, 0).splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(b"oom_kill "))

    def kill(self) -> None:
        """Kill every process in it."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                (folder / "cgroup.kill").write_text("1")
                continue
            for pid in _processes(folder):
                with contextlib.suppress(OSError):
                    os.kill(pid, 9)

    async def remove(self) -> bool:
        """Remove it; False when something in it won't go away."""
        for _ in range(_REMOVE_TRIES):
            if self.try_remove():
                return True
            await asyncio.sleep(0.01)
            self.kill()
        return False

    def try_remove(self) -> bool:
        """Remove what is empty of it; whether that was all."""
        if self._events is not None:
            os.close(self._events)
            self._events = None
        for folder in list(self._folders):
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                continue
            del self._folders[folder]
        return not self._folders


def make_group(places: Sequence[Hierarchy], label: str) -> Group:
    """Make a group in each hierarchy.

    Raises:
        OSError: it can't be made; nothing is left of it then.
    """
    made: dict[Path, frozenset[str]] = {}
    try:
        for place in places:
            folder = Path(place.folder) / label
            folder.mkdir()
            made[folder] = place.controllers
    except OSError:
        Group(made).try_remove()
        raise
    return Group(made)


def _settings(folder: Path, controllers: frozenset[str], limits: GroupLimits) -> list[tuple[str, str]]:
    quota = max(1000, int(limits.cpus * _PERIOD))
    settings = []
    if "memory" in controllers:
        name = "memory.max" if (folder / "memory.max").exists() else "memory.limit_in_bytes"
        settings.append((name, str(limits.memory)))
    if "pids" in controllers:
        settings.append(("pids.max", str(limits.processes)))
    if "cpu" in controllers:
        if (folder / "cpu.max").exists():
            settings.append(("cpu.max", f"{quota} {_PERIOD}"))
        else:
            settings += [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", str(quota))]
    return settings


def _swap(folder: Path, controllers: frozenset[str], limits: GroupLimits) -> list[tuple[str, str]]:
    """Swap would be memory beyond the limit."""
    if "memory" not in controllers:
        return []
    if (folder / "memory.max").exists():
        return [("memory.swap.max", "0")]
    return [("memory.memsw.limit_in_bytes", str(limits.memory))]


def _processes(folder: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    return []
