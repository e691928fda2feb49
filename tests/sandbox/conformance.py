"""What every provider's sandboxes must do, and what must hold for each capability that a provider names.

Another package's provider is held to it by a subclass whose fixture `spec` gives a `SandboxSpec`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentfly.resources.sandbox import Sandbox, SandboxSpec, pack, unpack
from agentfly.resources.sandbox.providers import provider_named

LIMIT = 4096


class Conformance:
    """One test for each promise. The fixture `spec` has `max_output=4096` and `disk="8MiB"`."""

    @pytest.fixture
    async def box(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        sandbox = Sandbox(**spec.args)
        await sandbox.start()
        yield sandbox
        await sandbox.stop()

    def can(self, spec: SandboxSpec, capability: str) -> bool:
        return capability in provider_named(spec.provider).capabilities

    # Commands

    async def test_a_command_has_its_input_folder_and_variables(self, box: Sandbox) -> None:
        await box.write("sub/file", "")
        command = "cat; ls; echo $GREETING; echo error >&2; exit 3"
        result = await box.run(command, stdin="in\n", env={"GREETING": "hällo"}, cwd="sub")
        assert (result.exit_code, result.status) == (3, "ok")
        assert (result.stdout, result.stderr) == ("in\nfile\nhällo\n", "error\n")

    async def test_a_command_that_takes_too_long_is_ended_with_what_it_said(self, box: Sandbox) -> None:
        result = await box.run("echo begun; sleep 600", timeout=1.0)
        assert (result.status, result.exit_code, result.stdout) == ("timeout", None, "begun\n")

    async def test_output_is_kept_to_its_limit_and_that_is_said(self, box: Sandbox) -> None:
        result = await box.run("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
        assert (result.status, result.truncated, result.exit_code) == ("output_truncated", True, 0)
        assert len(result.stdout) < LIMIT + 100
        assert result.stdout.endswith("end\n")
        assert (await box.run("printf '\\377'")).stdout == "�"

    async def test_a_command_that_is_killed_is_told_from_one_that_fails(self, box: Sandbox) -> None:
        assert (await box.run("kill -9 $$")).status == "killed"

    async def test_what_is_left_in_the_background_holds_nobody_and_goes_on(self, box: Sandbox) -> None:
        assert (await box.run("(sleep 0.3; touch finished) & echo started", timeout=10)).stdout == "started\n"
        assert (await box.run("until [ -e finished ]; do sleep 0.05; done", timeout=10)).status == "ok"

    async def test_commands_run_side_by_side(self, box: Sandbox) -> None:
        waiting = asyncio.create_task(box.run("until [ -e go ]; do sleep 0.05; done; echo went"))
        assert (await box.run_python("open('go', 'w').close(); 1")).value == "1"
        assert (await waiting).stdout == "went\n"

    async def test_a_command_that_is_taken_back_is_ended_and_the_sandbox_lives_on(self, box: Sandbox) -> None:
        await box.write("kept", "x")
        call = asyncio.create_task(box.run("touch begun; while true; do touch alive; sleep 0.1; done"))
        while "begun" not in [entry.name for entry in await box.list()]:
            await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await box.run("sleep 0.5; rm -f alive; sleep 0.5; ls", timeout=10)).stdout == "begun\nkept\n"

    async def test_a_command_that_can_not_start_is_an_os_error(self, box: Sandbox) -> None:
        with pytest.raises(FileNotFoundError):
            await box.run("true", cwd="none")
        with pytest.raises(OSError, match="null byte"):
            await box.run("true\0")

    # Commands whose output comes piece by piece

    async def test_output_streams_while_a_command_goes_on(self, box: Sandbox) -> None:
        pieces = []
        async for piece in box.stream("echo one; until [ -e go ]; do sleep 0.05; done; cat; exit 3", stdin="two\n"):
            pieces.append(piece)
            if piece.running:
                await box.write("go", "")
        assert "".join(piece.stdout for piece in pieces) == "one\ntwo\n"
        assert pieces[0].stdout == "one\n"
        assert [piece.running for piece in pieces][-2:] == [True, False]
        assert (pieces[-1].exit_code, pieces[-1].status) == (3, "ok")
        assert await box.processes() == {}

    async def test_streams_leave_nothing_out_however_slowly_they_are_read(self, box: Sandbox) -> None:
        size, last = 0, ""
        async for piece in box.stream(
            "head -c 200000 /dev/zero | tr '\\0' x; printf 'h\\303'; sleep 0.1; printf '\\244'"
        ):
            assert piece.left_out == 0
            size += len(piece.stdout)
            last = piece.stdout or last
        assert size == 200_002
        assert last.endswith("ä")

    async def test_whoever_stops_reading_ends_the_command(self, box: Sandbox) -> None:
        async for piece in box.stream("echo $$; while true; do touch alive; sleep 0.05; done"):
            assert piece.running
            break
        while await box.processes():
            await asyncio.sleep(0.01)
        assert (await box.run("sleep 0.3; rm -f alive; sleep 0.3; ls", timeout=10)).stdout == ""

    async def test_a_stream_that_takes_too_long_is_ended(self, box: Sandbox) -> None:
        pieces = [piece async for piece in box.stream("echo begun; sleep 600", timeout=1.0)]
        assert "".join(piece.stdout for piece in pieces) == "begun\n"
        assert (pieces[-1].status, pieces[-1].exit_code) == ("timeout", None)

    async def test_a_process_in_the_background_is_fed_asked_and_signalled(self, box: Sandbox) -> None:
        process = await box.spawn("while read line; do echo got $line; done; echo over", stdin="a\n", keep_input=True)
        assert await box.processes() == {process: True}
        text = await self.until(box, process, "got a\n")
        await box.send(process, "b\n", close=True)
        assert await self.until(box, process, "over\n", text) == "got a\ngot b\nover\n"
        while (piece := await box.output(process, wait=10)).running:
            assert not piece.stdout
        assert piece.exit_code == 0
        with pytest.raises(OSError, match="input"):
            await box.send(process, "c")
        other = await box.spawn("exec sleep 600")
        await box.signal(other)
        while (piece := await box.output(other, wait=10)).running:
            pass
        assert (piece.status, piece.exit_code) == ("killed", None)
        await box.forget(other)
        await box.forget(process)
        with pytest.raises(ProcessLookupError):
            await box.output(process)

    async def test_of_output_that_nobody_fetches_the_newest_is_kept(self, box: Sandbox) -> None:
        process = await box.spawn("head -c 100000 /dev/zero | tr '\\0' x; echo end")
        while (await box.processes())[process]:
            await asyncio.sleep(0.02)
        piece = await box.output(process)
        assert piece.stdout.endswith("xend\n")
        assert (len(piece.stdout), piece.left_out) == (LIMIT, 100_004 - LIMIT)

    async def test_processes_in_the_background_are_so_many_and_not_more(self, box: Sandbox) -> None:
        for _ in range(64):
            process = await box.spawn("true")
        with pytest.raises(OSError, match="64 background processes"):
            await box.spawn("true")
        await box.forget(process)
        await box.spawn("true")

    async def until(self, box: Sandbox, process: int, end: str, text: str = "") -> str:
        while not text.endswith(end):
            text += (await box.output(process, wait=10)).stdout
        return text

    # Folders

    async def test_a_folder_goes_in_and_comes_out(self, box: Sandbox, tmp_path: Path) -> None:
        source = tmp_path / "source"
        (source / "sub").mkdir(parents=True)
        (source / "sub" / "data.bin").write_bytes(os.urandom(100_000))
        (source / "run.sh").write_text("echo ran")
        (source / "run.sh").chmod(0o755)
        await box.upload(pack(source), "made/here")
        assert (await box.run("sh made/here/run.sh")).stdout == "ran\n"
        await box.run("ln -s /etc/passwd made/here/away; mkfifo made/here/pipe; echo new > made/here/sub/new")
        target = tmp_path / "target"
        left_out = unpack(await box.download("made/here"), target)
        assert sorted(left_out) == ["./away", "./pipe"]
        assert (target / "sub" / "data.bin").read_bytes() == (source / "sub" / "data.bin").read_bytes()
        assert (target / "sub" / "new").read_text() == "new\n"
        assert not (target / "away").exists()

    async def test_what_can_not_be_packed_or_unpacked_says_why(self, box: Sandbox) -> None:
        with pytest.raises(OSError, match="can't be unpacked"):
            await box.upload(b"rubbish")
        with pytest.raises(OSError, match="can't be packed"):
            await box.download("none")
        await box.run("head -c 100000 /dev/zero > large")
        with pytest.raises(OSError, match="more than 50000 bytes"):
            await box.download("large", max_bytes=50_000)

    # Files

    async def test_what_is_written_is_read(self, box: Sandbox) -> None:
        await box.write("a/b.bin", bytes(range(256)) * 4000)
        assert await box.read_bytes("a/b.bin") == bytes(range(256)) * 4000
        assert await box.read_bytes("a/b.bin", max_bytes=2) == b"\x00\x01"
        await box.write("a/b.bin", "shorter")
        assert (await box.run("cat a/b.bin")).stdout == "shorter"
        assert [(entry.name, entry.kind, entry.size) for entry in await box.list("a")] == [("b.bin", "file", 7)]
        assert [(entry.name, entry.kind) for entry in await box.list()] == [("a", "folder")]

    async def test_paths_lead_nowhere_else(self, box: Sandbox) -> None:
        await box.run("ln -s /etc away; mkfifo pipe")
        for path in ("../../../etc/passwd", "/etc/passwd", "away/passwd"):
            with pytest.raises(PermissionError):
                await box.read(path)
            with pytest.raises(PermissionError):
                await box.write(path, "x")
        for path in ("none", "pipe", ".", "null\0byte", "x" * 300):
            with pytest.raises(OSError):
                await box.read(path)
        with pytest.raises(OSError, match="more than the sandbox's disk"):
            await box.write("large", bytes(9 << 20))

    # Python

    async def test_python_lives_on_and_shows_values_and_errors(self, box: Sandbox, spec: SandboxSpec) -> None:
        assert self.can(spec, "python")
        assert (await box.run_python("import os\nx = 20\nprint('said')\nx + 1")).text == "said\n21"
        assert (await box.run_python("x * 2")).value == "40"
        failed = await box.run_python("1 / 0")
        assert failed.error is not None
        assert failed.error.startswith("Traceback (most recent call last):\n")
        assert failed.error.strip().endswith("ZeroDivisionError: division by zero")
        assert (await box.run_python("os.system('echo child')")).stdout == "child\n"

    async def test_python_is_interrupted_and_keeps_its_variables(self, box: Sandbox) -> None:
        await box.run_python("x = 1")
        result = await box.run_python("while True: pass", timeout=1.0)
        assert (result.status, result.state_lost) == ("timeout", False)
        assert (await box.run_python("x")).value == "1"

    async def test_python_that_ends_itself_is_replaced_and_that_is_said(self, box: Sandbox) -> None:
        await box.run_python("x = 1")
        result = await box.run_python("os = __import__('os'); os._exit(3)")
        assert result.state_lost
        assert "NameError" in str(await box.run_python("x"))

    async def test_one_process_has_no_more_memory_than_all(self, box: Sandbox) -> None:
        result = await box.run_python("bytearray(1 << 34)")
        assert "MemoryError" in str(result) or result.state_lost
        assert (await box.run_python("1")).value == "1"

    # From one lease to the next

    async def test_reset_leaves_nothing(self, box: Sandbox) -> None:
        await box.setup({"given": "1"}, prepare="cp given made")
        await box.run_python("x = 1")
        await box.run("(while true; do touch haunted; sleep 0.05; done) > /dev/null 2>&1 &")
        assert {entry.name for entry in await box.list()} >= {"given", "made"}
        await box.reset()
        assert "NameError" in str(await box.run_python("x"))
        assert (await box.run("sleep 0.3; ls")).stdout == ""
        assert await box.healthy()

    async def test_renew_begins_again_with_the_files_that_are_given(self, box: Sandbox) -> None:
        await box.write("old", "x")
        await box.renew({"new": "y"})
        assert [entry.name for entry in await box.list()] == ["new"]

    async def test_it_has_ended_when_that_is_said(self, box: Sandbox) -> None:
        await box.stop()
        assert not await box.healthy()
        await box.stop()

    # What only some can do

    async def test_isolation(self, spec: SandboxSpec, box: Sandbox, tmp_path: Path) -> None:
        if not self.can(spec, "isolation"):
            return
        secret = tmp_path / "secret"
        secret.write_text("secret")
        for path in [secret, *secret.parents]:
            if path.stat().st_uid == os.geteuid() and path != Path("/"):
                os.chmod(path, path.stat().st_mode | 0o055)
        assert "secret" not in (await box.run(f"cat {secret}")).stdout
        assert (await box.run(f"kill -0 {os.getpid()}")).exit_code != 0
        assert (await box.run(f"cat /proc/{os.getpid()}/environ")).exit_code != 0
        assert (await box.run("cat /etc/shadow; touch /usr/planted || touch /etc/planted")).exit_code != 0
        assert (await box.run("id -u")).stdout != "0\n"

    async def test_no_network_unless_the_spec_has_it(self, spec: SandboxSpec, box: Sandbox) -> None:
        if not self.can(spec, "isolation"):
            return
        listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert (await box.run_python(code)).error is not None
        listening.close()
        if self.can(spec, "network"):
            open_spec = SandboxSpec(provider=spec.provider, network=True)
            sandbox = Sandbox(**open_spec.args)
            listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
            await sandbox.start()
            try:
                assert (await sandbox.run_python(code)).error is None
            finally:
                await sandbox.stop()
                listening.close()
