"""Repositories: the small ones that come with this package, and archives of others."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from agentfly.context import Task
from agentfly.errors import ConfigError

_HEADING = "=== "


def shipped(name: str) -> dict[str, str]:
    """The files of a repository that comes with this package, by path."""
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (Path(__file__).parent / "repos" / f"{name}.txt").read_text().splitlines(keepends=True):
        if line.startswith(_HEADING):
            lines = files[line.removeprefix(_HEADING).strip()] = []
        else:
            lines.append(line)
    return {path: "".join(lines) for path, lines in files.items()}


def pack(files: Mapping[str, str]) -> str:
    """An archive (tar.gz in base64) that is the same for the same files, to stand in a row of a dataset."""
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content.encode())
            archive.addfile(entry, io.BytesIO(content.encode()))
    return base64.b64encode(made.getvalue()).decode()


def repository(task: Task) -> Mapping[str, bytes]:
    """The files of a task's repository: of its field `archive`, or none when an image holds them.

    `archive` is the path of a .zip or .tar(.gz, .bz2, .xz) file, or the content of one in base64. Links and other
    special files are left out; if all lies in one folder, that folder is the repository.

    Raises:
        ConfigError: there is no such file, or it is no archive.
    """
    archive = task.get("archive")
    if archive is None:
        return {}
    if not isinstance(archive, str):
        raise ConfigError(f"task {task.id!r}: its archive must be a path or base64, got {type(archive).__name__}")
    return _unpacked(archive)


@lru_cache(maxsize=64)
def _unpacked(archive: str) -> Mapping[str, bytes]:
    if len(archive) < 4096 and Path(archive).suffix:
        try:
            content = Path(archive).read_bytes()
        except OSError as error:
            raise ConfigError(f"the archive {archive} can't be read: {error.strerror}") from None
        name = archive
    else:
        try:
            content, name = base64.b64decode(archive, validate=True), "in base64"
        except binascii.Error:
            raise ConfigError(f"an archive is neither a path nor base64: {archive[:60]!r}") from None
    try:
        files = _zip(content) if zipfile.is_zipfile(io.BytesIO(content)) else _tar(content)
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise ConfigError(f"the archive {name} can't be unpacked: {error}") from None
    return _without_top(files)


def _tar(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        read = {entry.name: archive.extractfile(entry) for entry in archive if entry.isreg()}
        return {name: file.read() for name, file in read.items() if file is not None}


def _zip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist() if not entry.is_dir()}


def _without_top(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Without `./`, and without the one folder that archives of a repository put around it."""
    plain = {name.removeprefix("./"): content for name, content in files.items()}
    tops = {name.partition("/")[0] for name in plain}
    if len(tops) == 1 and all("/" in name for name in plain):
        return {name.partition("/")[2]: content for name, content in plain.items()}
    return plain
