"""Who a sandbox elsewhere belongs to, so that what a killed process left can be told from what is in use."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """This machine since it was started, as the processes of this process's namespace see it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"


def this_process() -> str:
    """The id of this process, and when it was started: ids are given to others again."""
    return f"{os.getpid()}-{started(os.getpid())}"


def is_dead(process: str) -> bool:
    """Whether a process of this machine, as `this_process` named it there, is no more."""
    pid, _, when = process.partition("-")
    return pid.isdigit() and started(int(pid)) != when


def started(pid: int) -> str:
    """When a process was started; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
