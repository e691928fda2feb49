"""Which cgroups this process may make, and what is left of those whose maker is dead."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path

from agentfly.resources.sandbox.bubblewrap.cgroups import Group, make_group
from agentfly.resources.sandbox.bubblewrap.hierarchy import (
    LABEL,
    WANTED,
    Hierarchy,
    ancestry,
    hierarchies,
    label_of,
    maker_of,
    start_time,
)
from agentfly.resources.sandbox.bubblewrap.janitor import leave_janitor

_LIMIT_FILES = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max",),
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
}
_serials = count(1)


@dataclass(frozen=True)
class Cgroups:
    """What can be limited here.

    Attributes:
        places: where groups can be made; `folder` of each is the one to make them in.
        reason: why not all of memory, cpu and pids can be limited; empty when they can.
    """

    places: tuple[Hierarchy, ...]
    reason: str

    @property
    def controllers(self) -> frozenset[str]:
        """Those of memory, cpu and pids that can be limited."""
        return frozenset().union(*(place.controllers for place in self.places))


@cache
def own_cgroups() -> Cgroups:
    """Look, once, by trying; remove what dead processes have left there."""
    try:
        own, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    except OSError as error:
        return Cgroups((), f"cgroups can't be seen: {error}")
    places: list[Hierarchy] = []
    seen = hierarchies(own, mounts)
    for hierarchy in seen:
        place = _usable(hierarchy)
        if place is not None:
            places.append(place)
    for place in places:
        sweep(Path(place.folder))
    found = Cgroups(tuple(places), "")
    missing = ", ".join(sorted(WANTED - found.controllers))
    if not missing:
        return found
    why = "no cgroups are mounted" if not seen else "this process may not make cgroups that limit it"
    return replace(found, reason=f"{missing}: {why}")


def new_label() -> str:
    """A name for a group of this process."""
    return label_of(_process_namespace(), os.getpid(), start_time(Path("/proc/self/stat").read_text()), next(_serials))


def new_group(places: Sequence[Hierarchy]) -> Group:
    """A group of this process in each place; it is removed even when this process is killed.

    Raises:
        OSError: it can't be made; nothing is left of it then.
    """
    label = new_label()
    maker = label.rpartition("-")[0]
    leave_janitor(tuple(f"{place.folder}/{maker}" for place in places))
    return make_group(places, label)


def sweep(folder: Path) -> None:
    """Remove the groups here whose makers are dead, and end what may still run in them."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{LABEL}-*"):
            maker = maker_of(path.name)
            if maker is not None and maker[0] == _process_namespace() and not _alive(maker[1], maker[2]):
                group = Group({path: frozenset()})
                group.kill()
                group.try_remove()


def _usable(hierarchy: Hierarchy) -> Hierarchy | None:
    """The place in a hierarchy where groups of ours limit something."""
    if hierarchy.version == 1:
        return _tried(hierarchy, hierarchy.folder)
    _enable(Path(hierarchy.folder))
    return next(filter(None, (_tried(hierarchy, folder) for folder in ancestry(hierarchy))), None)


def _enable(folder: Path) -> None:
    """Have groups below our own limited; the kernel refuses while processes are in it, except at the very top."""
    with contextlib.suppress(OSError):
        there = WANTED & set((folder / "cgroup.controllers").read_text().split())
        enabled = set((folder / "cgroup.subtree_control").read_text().split())
        if there - enabled:
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(there)))


def _tried(hierarchy: Hierarchy, folder: str) -> Hierarchy | None:
    probe = Path(folder) / label_of(_process_namespace(), os.getpid(), 0, f"probe{os.getpid()}")
    if not os.access(Path(folder) / "cgroup.procs", os.W_OK):
        return None  # processes can't be moved below it
    try:
        probe.mkdir()
    except OSError:
        return None
    try:
        controllers = frozenset(
            name
            for name, files in _LIMIT_FILES.items()
            if (hierarchy.version == 2 or name in hierarchy.controllers)
            and any(os.access(probe / file, os.W_OK) for file in files)
        )
    finally:
        with contextlib.suppress(OSError):
            probe.rmdir()
    return replace(hierarchy, folder=folder, controllers=controllers) if controllers else None


def _process_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _alive(pid: int, started: int) -> bool:
    try:
        return start_time(Path(f"/proc/{pid}/stat").read_text()) == started
    except (OSError, IndexError, ValueError):
        return False
