"""Removes a process's cgroups when it is killed and can't do so itself."""

from __future__ import annotations

import os
from functools import cache

# Sleeps in a read until the maker has ended, however: then nobody holds the pipe's other end any more. Where the
# maker has removed its groups there is nothing to do; else what still runs in them is killed, as often as it takes.
_SCRIPT = """
{
trap '' HUP INT TERM
read -r _ <&3
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    left=
    for prefix; do
        for group in "$prefix"-*; do
            [ -d "$group" ] || continue
            while read -r pid; do kill -9 "$pid"; done < "$group/cgroup.procs"
            rmdir "$group" || left=1
        done
    done
    [ "$left" ] || exit 0
    sleep 0.2
done
} &
"""


@cache
def leave_janitor(prefixes: tuple[str, ...]) -> int:
    """Have a small process of its own remove cgroups when this one has ended; one for each process is enough.

    Args:
        prefixes: how the paths of this process's cgroups begin, up to the serial number.

    Returns:
        The descriptor that tells the janitor, by its closing, that this process has ended.
    """
    theirs, ours = os.pipe()  # not inherited by what is started here, so only this process's end closes it
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    actions = [*quiet, (os.POSIX_SPAWN_DUP2, theirs, 3)]
    # In a session of its own and nobody's child: Ray kills the children of a worker that ends, groups are killed too.
    command = ["sh", "-c", _SCRIPT, "agentfly-janitor", *prefixes]
    try:
        first = os.posix_spawn("/bin/sh", command, {"PATH": os.defpath}, file_actions=actions, setsid=True)
        os.waitpid(first, 0)  # it has left the janitor behind
    finally:
        os.close(theirs)
    return ours
