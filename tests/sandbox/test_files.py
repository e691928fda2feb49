"""Files, written and read from outside."""

from __future__ import annotations

import pytest
from sandbox.boxes import running

from agentfly.resources.sandbox import Sandbox


async def test_what_is_written_is_read(any_box: Sandbox) -> None:
    await any_box.write("a/b.txt", "hällo")
    await any_box.write("c.bin", bytes(range(256)))
    assert await any_box.read("a/b.txt") == "hällo"
    assert await any_box.read_bytes("c.bin") == bytes(range(256))
    assert await any_box.read_bytes("c.bin", max_bytes=2) == b"\x00\x01"
    assert (await any_box.run_python("open('a/b.txt').read()")).value == "'hällo'"
    assert [(entry.name, entry.kind, entry.size) for entry in await any_box.list()] == [
        ("a", "folder", 0),
        ("c.bin", "file", 256),
    ]
    await any_box.write("c.bin", b"shorter")
    assert await any_box.read("./a/../c.bin") == "shorter"


async def test_files_are_the_same_for_code_inside_and_by_their_whole_paths(box: Sandbox) -> None:
    await box.write("/workspace/x", "1")
    await box.write("/tmp/y", "2")
    assert (await box.run("cat x /tmp/y")).stdout == "12"
    await box.run("ln -s /tmp/y link; mkfifo pipe")
    assert await box.read("link") == "2"
    kinds = {entry.name: entry.kind for entry in await box.list()}
    assert kinds == {"link": "link", "pipe": "other", "x": "file"}


async def test_large_files_go_in_pieces() -> None:
    content = bytes(range(256)) * (20 << 12)
    async with running(disk="32MiB") as box:
        await box.write("large", content)
        assert await box.read_bytes("large", max_bytes=1 << 30) == content
        assert await box.read_bytes("large", max_bytes=5 << 20) == content[: 5 << 20]


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "/proc/1/environ",
        "to_etc/passwd",
        "to_passwd",
        "/workspace/../etc/passwd",
        "/",
    ],
)
async def test_paths_that_lead_out_are_refused(box: Sandbox, path: str) -> None:
    await box.run("ln -s /etc to_etc; ln -s /etc/passwd to_passwd")
    with pytest.raises(PermissionError, match="outside the workspace"):
        await box.read(path)
    with pytest.raises(PermissionError, match="outside the workspace"):
        await box.write(path, "x")
    with pytest.raises(PermissionError, match="outside the workspace"):
        await box.list(path)


@pytest.mark.parametrize(
    "path",
    ["none", "folder", "pipe", "circle", "x" * 300, "/".join(["deep"] * 1500), "null\0byte", "", "lone\ud800surrogate"],
)
async def test_what_can_not_be_read_is_an_os_error(any_box: Sandbox, path: str) -> None:
    await any_box.run("mkdir folder; mkfifo pipe; ln -s circle circle")
    with pytest.raises(OSError):
        await any_box.read(path)
    assert (await any_box.run_python("1")).value == "1"


async def test_what_can_not_be_written_is_an_os_error(box: Sandbox) -> None:
    await box.run("mkdir folder; mkfifo pipe; touch file")
    for path in ("folder", "pipe", "file/below", "x" * 300):
        with pytest.raises(OSError):
            await box.write(path, "x")
    with pytest.raises(OSError, match="more than the sandbox's disk"):
        await box.write("large", bytes(9 << 20))
    await box.run("head -c 7000000 /dev/zero > filler")
    with pytest.raises(OSError):
        await box.write("large", bytes(4 << 20))


async def test_ten_thousand_files_and_odd_names_are_listed(box: Sandbox) -> None:
    await box.run_python("for n in range(10_000): open(f'{n:05}', 'w').close()\nopen(b'\\xff\\n', 'w').close()")
    names = [entry.name for entry in await box.list()]
    assert len(names) == 10_001
    assert names[:2] == ["00000", "00001"]
    assert names[-1] == "\\xff\n"
