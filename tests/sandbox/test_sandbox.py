"""What a sandbox does for those who mean well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psutil
import pytest

from agentfly.errors import ConfigError, ResourceDied
from agentfly.resources.sandbox import Sandbox, SandboxSpec

SPEC = SandboxSpec(name="test", memory="512MiB", disk="8MiB", max_output=4096)


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(**SPEC.args)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


async def test_the_interpreter_lives_on(box: Sandbox) -> None:
    assert (await box.run_python("x = 20\nx + 1")).value == "21"
    result = await box.run_python("print('said'); x * 2")
    assert (result.value, result.stdout, result.error) == ("40", "said\n", None)
    assert str(result) == "said\n40"


async def test_statements_have_no_value_and_none_is_not_shown(box: Sandbox) -> None:
    assert str(await box.run_python("y = 3")) == ""
    assert (await box.run_python("None")).value is None


async def test_errors_show_the_frames_of_the_code_only(box: Sandbox) -> None:
    result = await box.run_python("def f():\n    return 1 / 0\n\nf()")
    assert result.error is not None
    assert result.error.splitlines() == [
        "Traceback (most recent call last):",
        '  File "<cell>", line 4, in <module>',
        '  File "<cell>", line 2, in f',
        "ZeroDivisionError: division by zero",
    ]
    assert "SyntaxError" in str(await box.run_python("def f("))
    assert "SystemExit" in str(await box.run_python("raise SystemExit(3)"))
    assert (await box.run_python("1")).value == "1"


async def test_a_time_out_interrupts_and_keeps_the_state(box: Sandbox) -> None:
    await box.run_python("kept = 1")
    result = await box.run_python("while True: pass", timeout=0.2)
    assert (result.status, result.state_lost) == ("timeout", False)
    assert (await box.run_python("kept")).value == "1"


async def test_code_that_will_not_stop_is_killed_and_the_loss_is_told(box: Sandbox) -> None:
    await box.run_python("kept = 1")
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    result = await box.run_python(stubborn, timeout=0.2)
    assert (result.status, result.state_lost) == ("timeout", True)
    assert "NameError" in str(await box.run_python("kept"))


@pytest.mark.parametrize("code", ["import os; os.kill(os.getpid(), 9)", "import os; os._exit(0)"])
async def test_an_interpreter_that_dies_is_replaced(box: Sandbox, code: str) -> None:
    result = await box.run_python(code)
    assert (result.status, result.state_lost) == ("killed", True)
    assert (await box.run_python("1")).value == "1"


async def test_closed_outputs_harm_nobody(box: Sandbox) -> None:
    assert (await box.run_python("import os; os.close(1); os.close(2); 5")).value == "5"
    assert (await box.run_python("6")).value == "6"


async def test_commands(box: Sandbox) -> None:
    result = await box.run("cat; echo error >&2; echo $GREETING; pwd; exit 3", stdin="in\n", env={"GREETING": "hi"})
    assert (result.exit_code, result.status) == (3, "ok")
    assert (result.stdout, result.stderr) == ("in\nhi\n/workspace\n", "error\n")
    assert str(result) == "in\nhi\n/workspace\nerror\n[exit code 3]"
    assert (await box.run("sleep 60", timeout=0.2)).status == "timeout"
    assert (await box.run("kill -9 $$")).status == "killed"


async def test_a_process_in_the_background_does_not_hold_the_call(box: Sandbox) -> None:
    result = await asyncio.wait_for(box.run("sleep 600 & echo started"), 10)
    assert result.stdout == "started\n"
    assert "sleep" in (await box.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout


async def test_output_is_kept_to_a_limit_however_much_comes(box: Sandbox) -> None:
    command = await box.run("head -c 50000000 /dev/zero | tr '\\0' x")
    assert command.truncated
    assert command.stdout == "x" * 4096
    python = await box.run_python("print('y' * 1_000_000); 'z' * 1_000_000")
    assert python.truncated
    assert len(python.stdout) == 4096
    assert len(python.value or "") == 4096
    assert "�" in (await box.run("printf '\\377'")).stdout


async def test_files(box: Sandbox) -> None:
    await box.write("a/b.txt", "hällo")
    await box.write("c.bin", bytes(range(256)))
    assert await box.read("a/b.txt") == "hällo"
    assert await box.read_bytes("c.bin") == bytes(range(256))
    assert await box.read_bytes("c.bin", max_bytes=2) == b"\x00\x01"
    assert (await box.run_python("open('a/b.txt').read()")).value == "'hällo'"
    assert [(entry.name, entry.kind, entry.size) for entry in await box.list()] == [
        ("a", "folder", 0),
        ("c.bin", "file", 256),
    ]


async def test_files_that_are_not_there_are_os_errors(box: Sandbox) -> None:
    with pytest.raises(FileNotFoundError):
        await box.read("none")
    with pytest.raises(FileExistsError):
        await box.write("/dev/null/x", "")
    with pytest.raises(OSError):
        await box.write("/usr/x", "")
    with pytest.raises(OSError):
        await box.read("/dev/zero")
    with pytest.raises(FileNotFoundError):
        await box.run("true", cwd="none")
    assert (await box.run_python("1")).value == "1"


async def test_reset_leaves_nothing(box: Sandbox) -> None:
    await box.setup(files={"given.txt": "1"})
    await box.run_python("x = 1")
    await box.run("sleep 600 & touch /tmp/left")
    await box.reset()
    assert "NameError" in str(await box.run_python("x"))
    assert await box.list() == []
    assert await box.list("/tmp") == []
    assert "sleep" not in (await box.run("cat /proc/[0-9]*/cmdline")).stdout


async def test_a_dead_sandbox_says_so_and_a_reset_brings_it_back(box: Sandbox) -> None:
    with pytest.raises(ResourceDied):
        await box.run_python("import os; os.kill(os.getppid(), 9)")
    assert not await box.healthy()
    await box.reset()
    assert (await box.run_python("1")).value == "1"


async def test_a_cancelled_call_does_not_answer_the_next_one(box: Sandbox) -> None:
    call = asyncio.create_task(box.run("sleep 600"))
    await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(ResourceDied):
        await box.run_python("1")


async def test_calls_of_a_sandbox_run_one_after_the_other(box: Sandbox) -> None:
    results = await asyncio.gather(*(box.run_python(f"{n}") for n in range(20)))
    assert [result.value for result in results] == [str(n) for n in range(20)]


async def test_stopping_ends_every_process() -> None:
    before = {process.pid for process in psutil.process_iter()}
    boxes = [Sandbox(**SPEC.args) for _ in range(4)]
    await asyncio.gather(*(box.start() for box in boxes))
    await asyncio.gather(*(box.run("setsid sleep 600 > /dev/null 2>&1 &") for box in boxes))
    await asyncio.gather(*(box.stop() for box in boxes))
    left = [process for process in psutil.process_iter(["name"]) if process.pid not in before]
    assert not [process for process in left if process.info["name"] in ("bwrap", "sleep")]


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    box = Sandbox(**SPEC.args)
    for delay in (0.0, 0.005, 0.02):
        starting = asyncio.create_task(box.start())
        await asyncio.sleep(delay)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    await box.stop()
    for _ in range(200):
        if not [child for child in psutil.Process().children(recursive=True) if child.name() == "bwrap"]:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("a sandbox whose start was cancelled lives on")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"memory": "lots"}, "memory is 'lots'.*such as 512MiB"),
        ({"disk": "0MiB"}, "disk is '0MiB'"),
        ({"provider": "hope"}, "unknown provider 'hope'"),
        ({"max_processes": 0}, "max_processes is 0"),
    ],
)
def test_a_wrong_spec_is_told(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SandboxSpec(**settings)  # type: ignore[arg-type]


def test_every_setting_makes_another_pool() -> None:
    keys = {SandboxSpec().key, SandboxSpec(memory="2GiB").key, SandboxSpec(network=True).key, SandboxSpec(slots=3).key}
    assert len(keys) == 4
    assert SandboxSpec().key == SandboxSpec().key
