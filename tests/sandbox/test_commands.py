"""Shell commands."""

from __future__ import annotations

import asyncio

import pytest
from sandbox.boxes import LIMIT, running

from agentfly.resources.sandbox import Sandbox


async def test_a_command_has_all_that_it_needs(any_box: Sandbox) -> None:
    result = await any_box.run("cat; echo error >&2; echo $GREETING; exit 3", stdin="in\n", env={"GREETING": "hi"})
    assert (result.exit_code, result.status) == (3, "ok")
    assert (result.stdout, result.stderr) == ("in\nhi\n", "error\n")
    assert str(result) == result.text == "in\nhi\nerror\n[exit code 3]"
    await any_box.write("sub/file", "")
    assert (await any_box.run("ls", cwd="sub")).stdout == "file\n"


async def test_time_outs_and_signals_are_told(any_box: Sandbox) -> None:
    result = await any_box.run("echo begun; sleep 600", timeout=0.3)
    assert (result.status, result.exit_code, result.stdout) == ("timeout", None, "begun\n")
    assert str(result) == "begun\n[timed out after 0.3 s]"
    result = await any_box.run("kill -9 $$")
    assert (result.status, result.exit_code, result.note) == ("killed", None, "killed by signal 9")


async def test_much_input_and_much_output_at_once(any_box: Sandbox) -> None:
    text = "".join(f"{n:07}\n" for n in range(200_000))
    result = await any_box.run("cat", stdin=text)
    assert result.status == "output_truncated"
    assert result.stdout.startswith("0000000\n0000001\n")
    assert result.stdout.endswith("0199999\n")
    assert (await any_box.run("wc -c", stdin=b"\xff" * 1_000_000)).stdout.strip() == "1000000"
    assert (await any_box.run("true", stdin=text)).exit_code == 0


async def test_output_is_kept_to_a_limit_beginning_and_end(any_box: Sandbox) -> None:
    result = await any_box.run("head -c 50000000 /dev/zero | tr '\\0' x; echo end")
    assert (result.status, result.exit_code) == ("output_truncated", 0)
    assert len(result.stdout) < LIMIT + 50
    assert result.stdout.endswith("end\n")
    assert (await any_box.run("printf '\\377'")).stdout == "�"


async def test_endless_output_is_ended() -> None:
    async with running(timeout=60) as box:
        result = await box.run("yes")
    assert (result.status, result.exit_code) == ("output_truncated", None)
    assert "MiB of output" in str(result)


async def test_a_process_in_the_background_holds_nobody_and_goes_on(any_box: Sandbox) -> None:
    writer = "(for n in $(seq 60); do head -c 4096 /dev/zero; echo; sleep 0.01; done; touch finished) & echo started"
    result = await asyncio.wait_for(any_box.run(writer), 20)
    assert result.stdout.startswith("started\n")  # with the first of what comes behind, on a busy machine
    waiting = await any_box.run("until [ -e finished ]; do sleep 0.02; done", timeout=20)
    assert waiting.status == "ok"


async def test_commands_run_side_by_side(any_box: Sandbox) -> None:
    waiting = asyncio.create_task(any_box.run("until [ -e go ]; do sleep 0.01; done; echo went"))
    assert (await any_box.run_python("open('go', 'w').close(); 1")).value == "1"
    assert (await waiting).stdout == "went\n"


async def test_a_cancelled_command_is_ended_and_the_sandbox_lives_on(any_box: Sandbox) -> None:
    await any_box.write("kept", "x")
    call = asyncio.create_task(any_box.run("touch begun; sleep 61.5"))
    while not [entry for entry in await any_box.list() if entry.name == "begun"]:
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await any_box.run("cat kept; ! grep -s [6]1.5 /proc/[0-9]*/cmdline")).text == "x"


async def test_commands_that_can_not_start_are_os_errors(any_box: Sandbox) -> None:
    with pytest.raises(FileNotFoundError):
        await any_box.run("true", cwd="none")
    await any_box.write("file", "")
    with pytest.raises(NotADirectoryError):
        await any_box.run("true", cwd="file")
    with pytest.raises(OSError, match="null byte"):
        await any_box.run("true\0")
    with pytest.raises(OSError, match="null byte"):
        await any_box.run("true", env={"A": "\0"})
    assert (await any_box.run("true", env={"A": "", "B": "b"})).exit_code == 0


async def test_python_in_the_shell_is_the_same_one(box: Sandbox) -> None:
    version = "import sys; sys.version"
    assert (await box.run(f"python3 -c '{version}; print(repr(sys.version))'")).stdout.strip() == (
        await box.run_python(version)
    ).value


async def test_the_surroundings_are_those_of_a_small_machine(box: Sandbox) -> None:
    result = await box.run("whoami; hostname; pwd; echo $HOME; ls -a /workspace; getent hosts localhost | wc -l")
    assert result.stdout.split() == ["agent", "sandbox", "/workspace", "/workspace", ".", "..", "1"]
    await box.write("ask.py", "import urllib.request\nprint(urllib.request.urlopen('http://localhost:8000').status)")
    served = await box.run(
        "python3 -m http.server 8000 --bind 127.0.0.1 > log 2>&1 & "
        "for n in $(seq 100); do python3 ask.py 2> /dev/null && break; sleep 0.05; done"
    )
    assert served.stdout == "200\n"
