"""Watches over what no limit of the kernel covers: memory of all processes together, and the number of files."""

from __future__ import annotations

import os


class Watch:
    """Measures now and then.

    Args:
        memory: bytes that all processes together may have in memory; 0 leaves that to a cgroup.
        files: files and folders at most.
        folders: where they are counted.
    """

    def __init__(self, memory: int, files: int, folders: tuple[str, ...]) -> None:
        self._memory = memory
        self._files = files
        self._folders = folders
        self._last_files = 0
        self._page = os.sysconf("SC_PAGE_SIZE")

    @property
    def watches_memory(self) -> bool:
        """Whether that is ours to do."""
        return self._memory > 0

    def too_many_files(self) -> bool:
        """Whether there are more than allowed, and still more than the last time: deleting them is fine."""
        if not self._files:
            return False
        used = 0
        for folder in self._folders:
            found = os.statvfs(folder)
            used += found.f_files - found.f_ffree
        grown = used > self._last_files
        self._last_files = used
        return used > self._files and grown

    def memory_hog(self) -> int | None:
        """The process with the most memory, when all together have too much."""
        if not self._memory:
            return None
        sizes = {pid: self._resident(pid) for pid in processes()}
        if sum(sizes.values()) <= self._memory:
            return None
        return max(sizes, key=lambda pid: sizes[pid])

    def _resident(self, pid: int) -> int:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * self._page
        except (OSError, IndexError, ValueError):
            return 0


def processes() -> list[int]:
    """The processes inside, this one aside."""
    me = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != me]
