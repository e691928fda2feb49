"""Where this process stands in the machine's cgroups, and where it could make groups of its own. Reads text only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

WANTED = frozenset({"memory", "cpu", "pids"})
LABEL = "agentfly"


@dataclass(frozen=True)
class Hierarchy:
    """A mounted hierarchy.

    Attributes:
        version: 1 or 2.
        controllers: of version 1 those it was mounted with; of version 2 none are known before one looks.
        folder: of this process's own group in it.
        root: where it is mounted.
    """

    version: int
    controllers: frozenset[str]
    folder: str
    root: str


def hierarchies(own_cgroups: str, mounts: str) -> list[Hierarchy]:
    """The hierarchies that can be seen from here, and that could limit something.

    Args:
        own_cgroups: text of `/proc/self/cgroup`.
        mounts: text of `/proc/self/mountinfo`.
    """
    own = _own_paths(own_cgroups)
    found = []
    for root, mounted, kind, options in _cgroup_mounts(mounts):
        controllers = frozenset() if kind == "cgroup2" else options & WANTED
        path = own.get("") if kind == "cgroup2" else next((own[name] for name in controllers if name in own), None)
        if path is None or (kind == "cgroup" and not controllers):
            continue
        below = os.path.relpath(path, root)
        if ".." in (*path.split("/"), *below.split("/")):
            continue  # our own group isn't in the part that is mounted
        folder = os.path.normpath(os.path.join(mounted, below))
        found.append(Hierarchy(2 if kind == "cgroup2" else 1, controllers, folder, mounted))
    return found


def ancestry(hierarchy: Hierarchy) -> Iterable[str]:
    """Our own folder and those above it, up to where the hierarchy is mounted."""
    folder = hierarchy.folder
    yield folder
    while folder != hierarchy.root:
        folder = os.path.dirname(folder)
        yield folder


def label_of(namespace: int, pid: int, started: int, serial: int | str) -> str:
    """A group's name: it tells who made it, so that those can be found whose maker is dead."""
    return f"{LABEL}-{namespace}-{pid}-{started}-{serial}"


def maker_of(label: str) -> tuple[int, int, int] | None:
    """Process namespace, id and start time of who made a group; None when its name is none of ours."""
    match = re.fullmatch(rf"{LABEL}-(\d+)-(\d+)-(\d+)-\w+", label)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def start_time(stat: str) -> int:
    """When a process started, from its `/proc/PID/stat`: with its id, that names it for as long as a machine runs."""
    # The second field is the program's name, in parentheses, and may hold anything.
    return int(stat.rpartition(")")[2].split()[19])


def _own_paths(text: str) -> dict[str, str]:
    """Our path by controller; that of version 2 has the empty name."""
    paths = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            paths[name] = path
    return paths


def _cgroup_mounts(text: str) -> Iterable[tuple[str, str, str, frozenset[str]]]:
    """Of each mounted hierarchy: the part that is mounted, where, its type, its options."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options, *_) = before.split(), [*after.split(), "", "", ""]
        if kind in ("cgroup", "cgroup2"):
            yield _unescape(fields[3]), _unescape(fields[4]), kind, frozenset(options.split(","))


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
