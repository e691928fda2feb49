"""What a rollout left in its workspace, taken over into a fresh one."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from agentfly.errors import ToolError
from agentfly.resources.sandbox import FileEntry, Sandbox

# What makes Python or pytest do something that no test asks for: these stay as the task has them.
PROTECTED = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"),
    *("pyproject.toml", "sitecustomize.py", "usercustomize.py", "*.pth", "*.dist-info", "*.egg-info", "*.pyc"),
    *("__pycache__", ".git", "pytest", "pytest.py", "_pytest", "pluggy"),
)
_AT_ONCE = 16


class TooMuch(Exception):
    """The workspace holds more than is taken over; its text says how much that is."""


def is_protected(path: str, patterns: Sequence[str]) -> bool:
    """Whether the path, or a folder or name in it, is one of these."""
    parts = path.split("/")
    above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in (*parts, *above))


def merged(
    given: Mapping[str, str | bytes],
    left: Mapping[str, bytes],
    hidden: Mapping[str, str | bytes],
    patterns: Sequence[str],
) -> dict[str, str | bytes]:
    """The files of a fresh workspace.

    Args:
        given: what the task began with.
        left: what the rollout left.
        hidden: what it never saw; this wins.
        patterns: what is taken from `given` whatever the rollout did to it, and isn't there if `given` has none.
    """
    kept = {path: content for path, content in _plain(given).items() if is_protected(path, patterns)}
    files: dict[str, str | bytes] = {path: left[path] for path in left if not is_protected(path, patterns)}
    for path, content in {**kept, **_plain(hidden)}.items():
        # A file in the place of one of its folders, or a folder in its own, would keep it out.
        for other in list(files):
            if path.startswith(other + "/") or other.startswith(path + "/"):
                del files[other]
        files[path] = content
    return files


def unchanged(files: Mapping[str, str | bytes], sources: Sequence[Mapping[str, str | bytes]]) -> list[str]:
    """The files that are as one of the sources has them."""
    return [
        path
        for path, content in files.items()
        if any(path in source and _bytes(source[path]) == _bytes(content) for source in map(_plain, sources))
    ]


def _plain(files: Mapping[str, str | bytes]) -> dict[str, str | bytes]:
    return {posixpath.normpath(path): content for path, content in files.items()}


def _bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


async def left_in(
    box: Sandbox, *, patterns: Sequence[str] = PROTECTED, max_files: int = 5000, max_bytes: int = 32 << 20
) -> dict[str, bytes]:
    """The regular files of a workspace, by path; links are left out.

    Args:
        patterns: what needn't be read.
        max_files, max_bytes: of all together.

    Raises:
        TooMuch: there are more.
    """
    paths: list[str] = []
    folders = ["."]
    while folders:
        below = await asyncio.gather(*(_entries(box, folder) for folder in folders[:_AT_ONCE]))
        listed = list(zip(folders[:_AT_ONCE], below, strict=True))
        del folders[:_AT_ONCE]
        for folder, entries in listed:
            for entry in entries:
                path = posixpath.normpath(posixpath.join(folder, entry.name))
                if is_protected(path, patterns):
                    continue
                if entry.kind == "folder":
                    folders.append(path)
                elif entry.kind == "file":
                    paths.append(path)
            if len(paths) + len(folders) > max_files:
                raise TooMuch(f"more than {max_files} files")
    return await _contents(box, paths, max_bytes)


async def _entries(box: Sandbox, folder: str) -> list[FileEntry]:
    try:
        return await box.list(folder)
    except (OSError, ToolError):
        return []  # gone meanwhile, not to be read, or the sandbox had to be started anew


async def _contents(box: Sandbox, paths: Sequence[str], max_bytes: int) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    room = max_bytes
    for at in range(0, len(paths), _AT_ONCE):
        some = paths[at : at + _AT_ONCE]
        read = await asyncio.gather(*(_content(box, path, room + 1) for path in some))
        for path, content in zip(some, read, strict=True):
            if content is not None:
                contents[path] = content
                room -= len(content)
        if room < 0:
            raise TooMuch(f"more than {max_bytes >> 20} MiB")
    return contents


async def _content(box: Sandbox, path: str, most: int) -> bytes | None:
    try:
        return await box.read_bytes(path, max_bytes=most)
    except (OSError, ToolError):
        return None
