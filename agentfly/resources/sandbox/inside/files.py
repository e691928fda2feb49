"""Files, for the host: by paths in the workspace or the folder for temporary files, and nowhere else."""

from __future__ import annotations

import errno
import os
import stat

from agentfly.resources.sandbox.inside.frames import Frame, Value

_MOST_ENTRIES = 100_000


class Files:
    """File operations.

    Args:
        workspace: what relative paths start from.
        others: further folders that may be used.
    """

    def __init__(self, workspace: str, others: tuple[str, ...]) -> None:
        self.workspace = workspace
        self._roots = tuple(os.path.realpath(root) for root in (workspace, *others))

    def write(self, request: Frame) -> dict[str, Value]:
        """Write a file; its folders are made."""
        path = self._resolve(request)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = self._open(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.ftruncate(descriptor, 0)
            data = memoryview(request["data"])
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)
        return {}

    def read(self, request: Frame) -> dict[str, Value]:
        """A part of a file."""
        descriptor = self._open(self._resolve(request), os.O_RDONLY)
        try:
            return {"data": os.pread(descriptor, int(request["length"]), int(request["offset"]))}
        finally:
            os.close(descriptor)

    def list(self, request: Frame) -> dict[str, Value]:
        """The entries of a folder: kind, size and name of each, with null bytes between."""
        parts: list[bytes] = []
        with os.scandir(self._resolve(request)) as found:
            for entry in found:
                if len(parts) >= _MOST_ENTRIES:
                    raise OSError(errno.EOVERFLOW, f"more than {_MOST_ENTRIES} entries")
                kind = _kind(entry)
                size = entry.stat(follow_symlinks=False).st_size if kind == "file" else 0
                parts.append(b"%s\0%d\0%s" % (kind.encode(), size, os.fsencode(entry.name)))
        return {"entries": b"\0".join(parts)}

    def _resolve(self, request: Frame) -> str:
        """The real path, links followed.

        Raises:
            PermissionError: it leads out of the folders that may be used.
        """
        path = os.path.realpath(os.path.join(self.workspace, os.fsdecode(request["path"])))
        if not any(path == root or path.startswith(root + "/") for root in self._roots):
            raise PermissionError(errno.EACCES, "outside the workspace")
        return path

    def _open(self, path: str, flags: int) -> int:
        # A pipe in the file's place would never end, or never be opened.
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o666)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file")
        return descriptor


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
