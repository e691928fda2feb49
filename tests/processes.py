"""Processes that tests start are marked in their environment, and found again by the mark whoever started them."""

from __future__ import annotations

import os
import time
from typing import Literal


def marked(mark: str, *, where: Literal["environ", "cmdline"] = "environ") -> dict[int, str]:
    """Command lines of the processes that have the mark, by pid, the calling one aside."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() not in _read(entry.path, where):
                continue
            command = _read(entry.path, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
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


def _read(process: str, name: str) -> bytes:
    with open(f"{process}/{name}", "rb") as file:
        return file.read()
