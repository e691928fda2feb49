"""Processes that tests start are marked in their environment, and found again by the mark whoever started them."""

from __future__ import annotations

import os
import time


def marked(mark: str) -> dict[int, str]:
    """Command lines of the processes that inherited the mark, by pid, the calling one aside."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as environ:
                if mark.encode() not in environ.read():
                    continue
            with open(f"/proc/{entry.name}/cmdline", "rb") as cmdline:
                command = cmdline.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if command:
            found[int(entry.name)] = command
    return found


def left_after(mark: str, seconds: float) -> dict[int, str]:
    """What is still there of the mark when the time is over; returns at once when nothing is."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left
