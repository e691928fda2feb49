"""Folders as archives, into sandboxes and out of them.

What comes out was made by the policy: nothing in it is trusted.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from errno import EEXIST, EISDIR, ENAMETOOLONG, ENOTDIR
from pathlib import Path, PurePosixPath
from shlex import quote

from agentfly.errors import ToolError
from agentfly.resources.sandbox.results import CommandResult

# Run inside, by whatever Python there is.
_UNPACK = """
import os, sys, tarfile
os.makedirs(sys.argv[1], exist_ok=True)
archive = tarfile.open(fileobj=sys.stdin.buffer, mode="r|*")
archive.extractall(sys.argv[1], **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
"""
_PACK = """
import sys, tarfile
source, place, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
class Limited:
    def __init__(self, file):
        self.file, self.left = file, most
    def write(self, data):
        self.left -= len(data)
        if self.left < 0:
            raise SystemExit("more than %d bytes" % most)
        return self.file.write(data)
with open(place, "xb") as file, tarfile.open(fileobj=Limited(file), mode="w|", format=tarfile.PAX_FORMAT) as archive:
    archive.add(source, arcname=".", filter=lambda member: None if member.name == "./" + place else member)
"""


def pack(source: Path, *, max_bytes: int = 1 << 30) -> bytes:
    """A file or folder of this machine as a tar archive for `Sandbox.upload`. Links stay links.

    Args:
        max_bytes: of all files together.

    Raises:
        ToolError: they are more.
        OSError: it can't be read.
    """
    buffer, size = io.BytesIO(), 0

    def counted(member: tarfile.TarInfo) -> tarfile.TarInfo:
        nonlocal size
        size += member.size
        if size > max_bytes:
            raise ToolError(f"{source} holds more than {max_bytes} bytes")
        return member

    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        archive.add(source, arcname="." if source.is_dir() else source.name, filter=counted)
    return buffer.getvalue()


def unpack(archive: bytes, folder: Path, *, max_bytes: int = 1 << 30, max_files: int = 10_000) -> list[str]:
    """Write what `Sandbox.download` gave into a new folder of this machine.

    Only regular files and folders are made, with plain rights and no links of any kind, so no entry can lead the next
    one elsewhere.

    Args:
        folder: must not be there, or be empty.
        max_bytes, max_files: of what is written.

    Returns:
        The entries that were left out: links, devices, names that lead out of the folder.

    Raises:
        ToolError: it is no archive, or holds more.
        OSError: the folder isn't empty, or can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(17, "it isn't empty", str(folder))
    left_out: list[str] = []
    files = size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as members:
            for member, parts in _members(members, left_out):
                files, size = files + 1, size + member.size
                if files > max_files or size > max_bytes:
                    raise ToolError(f"the archive holds more than {max_files} files or {max_bytes} bytes")
                if not _write(members, member, folder.joinpath(*parts)):
                    left_out.append(member.name)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise ToolError(f"what came out of the sandbox is no archive: {error}") from None
    return left_out


def _members(archive: tarfile.TarFile, left_out: list[str]) -> Iterator[tuple[tarfile.TarInfo, tuple[str, ...]]]:
    """Those that may be written, and the parts of their paths."""
    for member in archive:
        path = PurePosixPath(member.name)
        parts = tuple(part for part in path.parts if part != ".")
        if not parts:
            continue
        odd = path.is_absolute() or ".." in parts or "\0" in member.name or "\\" in member.name
        if odd or not (member.isreg() or member.isdir()):
            left_out.append(member.name)
        else:
            yield member, parts


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> bool:
    """Whether it could be: names may be too long, or say that a file is a folder too."""
    try:
        (place if member.isdir() else place.parent).mkdir(parents=True, exist_ok=True)
        if member.isreg():
            _copy(archive, member, place)
    except OSError as error:
        if error.errno not in (ENAMETOOLONG, EEXIST, ENOTDIR, EISDIR):
            raise
        return False
    return True


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    source = archive.extractfile(member)
    assert source is not None
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        while data := source.read(1 << 20):
            file.write(data)


def unpack_command(path: str) -> str:
    """Unpacks its input inside."""
    return _python(_UNPACK, path)


def pack_command(path: str, place: str, max_bytes: int) -> str:
    """Packs a file or folder inside into a new file there."""
    return _python(_PACK, path, place, str(max_bytes))


def last_line(result: CommandResult) -> str:
    """Of what a command said was wrong, else how it ended."""
    return next(reversed((result.stderr or str(result)).splitlines()), "no reason given")


def _python(program: str, *arguments: str) -> str:
    rest = " ".join(map(quote, arguments))
    return f'p=$(command -v python3 || command -v python) && exec "$p" -I -c {quote(program)} {rest}'
