"""What comes out of a sandbox as an archive is never trusted."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly.errors import ToolError
from agentfly.resources.sandbox import pack, unpack

PARTS = st.sampled_from(["a", "b", "..", ".", "", "/", "/etc", "x" * 300, "a\\b"])
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])


def archive(*members: tuple[str, bytes, str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, kind, target, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            info.mode = 0o7777
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_links_lead_no_entry_elsewhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    data = archive(
        ("away", tarfile.SYMTYPE, str(outside), b""),
        ("away/planted", tarfile.REGTYPE, "", b"x"),
        ("hard", tarfile.LNKTYPE, "/etc/passwd", b""),
        ("../escaped", tarfile.REGTYPE, "", b"x"),
        (str(tmp_path / "absolute"), tarfile.REGTYPE, "", b"x"),
        ("device", tarfile.CHRTYPE, "", b""),
        ("fine", tarfile.REGTYPE, "", b"content"),
    )
    left_out = unpack(data, tmp_path / "target")
    assert left_out == ["away", "hard", "../escaped", str(tmp_path / "absolute"), "device"]
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "escaped").exists()
    assert not (tmp_path / "absolute").exists()
    assert (tmp_path / "target" / "fine").read_text() == "content"
    assert (tmp_path / "target" / "fine").stat().st_mode & 0o7111 == 0


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(PARTS, max_size=4).map("/".join), KINDS, st.sampled_from(["..", "/etc", "a"]))))
def test_nothing_is_written_outside_whatever_an_archive_holds(
    tmp_path_factory: pytest.TempPathFactory, members: list[tuple[str, bytes, str]]
) -> None:
    place = tmp_path_factory.mktemp("unpacked")
    (place / "beside").write_text("as it was")
    unpack(archive(*((name, kind, target, b"data") for name, kind, target in members)), place / "in" / "target")
    assert sorted(path.name for path in place.iterdir()) == ["beside", "in"]
    assert [path.name for path in (place / "in").iterdir()] == ["target"]
    assert (place / "beside").read_text() == "as it was"
    for path in (place / "in").rglob("*"):
        assert not path.is_symlink()
        assert path.is_dir() or (path.is_file() and path.stat().st_nlink == 1)


def test_more_than_is_wanted_is_refused(tmp_path: Path) -> None:
    many = archive(*((str(number), tarfile.REGTYPE, "", b"") for number in range(20)))
    with pytest.raises(ToolError, match="more than 10 files"):
        unpack(many, tmp_path / "many", max_files=10)
    large = archive(("large", tarfile.REGTYPE, "", bytes(5000)))
    with pytest.raises(ToolError, match="or 4000 bytes"):
        unpack(large, tmp_path / "large", max_bytes=4000)
    sparse = bytearray(archive(("sparse", tarfile.REGTYPE, "", b"")))
    sparse[124:136] = b"77777777777\0"  # a size that isn't there
    with pytest.raises(ToolError):
        unpack(bytes(sparse), tmp_path / "sparse")


def test_rubbish_and_folders_that_hold_something_are_refused(tmp_path: Path) -> None:
    for data in (b"", b"rubbish" * 1000, os.urandom(10_240)):
        with pytest.raises(ToolError, match="no archive"):
            unpack(data, tmp_path / "target")
    (tmp_path / "target" / "mine").write_text("")
    with pytest.raises(FileExistsError):
        unpack(archive(), tmp_path / "target")


def test_a_folder_that_is_packed_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "source" / "sub").mkdir(parents=True)
    (tmp_path / "source" / "sub" / "file").write_bytes(bytes(range(256)))
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path / "source"))) as made:
        assert sorted(made.getnames()) == [".", "./sub", "./sub/file"]
    with pytest.raises(ToolError, match="more than 10 bytes"):
        pack(tmp_path / "source", max_bytes=10)
