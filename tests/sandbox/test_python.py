"""The interpreter that lives on."""

from __future__ import annotations

import asyncio

import pytest
from sandbox.boxes import LIMIT, running

from agentfly.resources.sandbox import PythonResult, Sandbox


async def test_variables_live_on(any_box: Sandbox) -> None:
    assert (await any_box.run_python("x = 20\nx + 1")).value == "21"
    result = await any_box.run_python("print('said'); x * 2")
    assert (result.value, result.stdout, result.error, result.status) == ("40", "said\n", None, "ok")
    assert str(result) == result.text == "said\n40"


async def test_statements_have_no_value_and_none_is_not_shown(any_box: Sandbox) -> None:
    assert str(await any_box.run_python("y = 3")) == ""
    assert (await any_box.run_python("None")).value is None
    assert str(await any_box.run_python("")) == ""


async def test_errors_show_the_lines_and_frames_of_the_code_only(box: Sandbox) -> None:
    await box.run_python("def f():\n    return 1 / 0")
    error = (await box.run_python("\nf()")).error
    assert error is not None
    lines = [line for line in error.splitlines() if set(line) - set(" ~^")]
    assert lines == [
        "Traceback (most recent call last):",
        '  File "<cell 2>", line 2, in <module>',
        "    f()",
        '  File "<cell 1>", line 2, in f',
        "    return 1 / 0",
        "ZeroDivisionError: division by zero",
    ]
    assert "SyntaxError" in str(await box.run_python("def f("))
    assert (await box.run_python("1")).value == "1"


async def test_an_exit_is_no_error_unless_it_says_so(any_box: Sandbox) -> None:
    await any_box.run_python("kept = 1")
    assert str(await any_box.run_python("exit()")) == ""
    assert (await any_box.run_python("import sys; sys.exit('no luck')")).error == "SystemExit: no luck"
    assert (await any_box.run_python("kept")).value == "1"


@pytest.mark.parametrize("code", ["'\\ud800'", "x = '\0'", "é = 'ü'; é", "\udcff"])
async def test_odd_characters_are_told_and_harm_nobody(box: Sandbox, code: str) -> None:
    await box.run_python(code)
    assert (await box.run_python("1")).value == "1"


async def test_a_time_out_interrupts_and_keeps_the_state(any_box: Sandbox) -> None:
    await any_box.run_python("kept = 1")
    result = await any_box.run_python("print('so far')\nwhile True:\n    pass", timeout=0.3)
    assert (result.status, result.state_lost, result.stdout) == ("timeout", False, "so far\n")
    assert "KeyboardInterrupt" in (result.error or "")
    assert str(result).endswith("[timed out after 0.3 s]")
    assert (await any_box.run_python("kept")).value == "1"


async def test_children_of_the_code_are_interrupted_with_it(box: Sandbox) -> None:
    result = await box.run_python("import subprocess; subprocess.run(['sleep', '600'])", timeout=0.3)
    assert (result.status, result.state_lost) == ("timeout", False)
    assert "sleep" not in (await box.run("cat /proc/[0-9]*/comm")).stdout


@pytest.mark.parametrize(
    "stubborn",
    [
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "import time\nwhile True:\n    try: time.sleep(600)\n    except BaseException: pass",
        "import time\nclass Endless:\n    def __repr__(self):\n        while True:\n            try: time.sleep(600)\n"
        "            except BaseException: pass\nEndless()",
    ],
)
async def test_code_that_will_not_stop_is_killed_and_the_loss_is_told(any_box: Sandbox, stubborn: str) -> None:
    await any_box.run_python("kept = 1")
    result = await any_box.run_python(stubborn, timeout=0.3)
    assert (result.status, result.state_lost, result.files_lost) == ("timeout", True, False)
    assert "variables are lost" in str(result)
    assert "NameError" in str(await any_box.run_python("kept"))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import ctypes; ctypes.string_at(0)", "signal 11"),
        ("import os; os.closerange(3, 1000)", "the interpreter ended"),
    ],
)
async def test_an_interpreter_that_dies_is_replaced(any_box: Sandbox, code: str, why: str) -> None:
    await any_box.write("kept", "x")
    result = await any_box.run_python(code)
    assert (result.status, result.state_lost, result.files_lost) == ("killed", True, False)
    assert why in str(result)
    assert (await any_box.run_python("open('kept').read()")).value == "'x'"


async def test_an_interpreter_that_died_since_is_told_at_the_next_call(box: Sandbox) -> None:
    await box.run_python("import os, threading; threading.Timer(0.1, os._exit, [0]).start()")
    await box.run("while [ $(ls -d /proc/[0-9]* | wc -l) -gt 99 ]; do :; done; sleep 0.3")
    result = await box.run_python("1")
    assert (result.value, result.state_lost) == ("1", True)
    assert not (await box.run_python("1")).state_lost


async def test_code_that_forks_is_answered_once(any_box: Sandbox) -> None:
    result = await any_box.run_python("import os\nchild = os.fork()\n'child' if child == 0 else 'parent'")
    assert result.value == "'parent'"
    assert (await any_box.run_python("2")).value == "2"


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.close(1); os.close(2)",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import os; os.dup2(os.open('/dev/null', os.O_WRONLY), 1)",
        "import sys; sys.stdout = None",
    ],
)
async def test_closed_outputs_are_there_again(any_box: Sandbox, code: str) -> None:
    await any_box.run_python(code)
    assert (await any_box.run_python("print('again'); 6")).text == "again\n6"


async def test_output_is_kept_to_a_limit_beginning_and_end(any_box: Sandbox) -> None:
    result = await any_box.run_python("print('y' * 1_000_000 + 'end'); 'z' * 1_000_000")
    assert (result.status, result.truncated) == ("output_truncated", True)
    assert result.stdout.startswith("yyy")
    assert result.stdout.endswith("yend\n")
    assert "bytes left out" in result.stdout
    for text in (result.stdout, result.value or ""):
        assert len(text) <= LIMIT + 50


async def test_what_children_and_c_code_write_is_seen(box: Sandbox) -> None:
    result = await box.run_python("import os; os.system('echo out; echo err >&2'); os.write(1, b'\\xff'); None")
    assert (result.stdout, result.stderr) == ("out\n�", "err\n")


async def test_a_thread_goes_on_and_is_heard_at_the_next_call(box: Sandbox) -> None:
    await box.run_python("import threading; threading.Timer(0.1, print, ['late']).start()")
    assert (await box.run_python("import time; time.sleep(0.3)")).stdout == "late\n"


async def test_await_works_at_the_top(any_box: Sandbox) -> None:
    result = await any_box.run_python("import asyncio\nawait asyncio.sleep(0)\nawait asyncio.sleep(0, 'v')")
    assert result.value == "'v'"


async def test_classes_and_modules_behave_as_in_a_program(any_box: Sandbox) -> None:
    await any_box.run_python("import pickle\nclass C: pass\nassert type(pickle.loads(pickle.dumps(C()))) is C")
    await any_box.write("mine.py", "VALUE = 7")
    assert (await any_box.run_python("import mine; mine.VALUE, __name__")).value == "(7, '__main__')"
    assert (await any_box.run_python("input()")).error is not None


async def test_pieces_of_code_run_one_after_the_other(any_box: Sandbox) -> None:
    results = await asyncio.gather(*(any_box.run_python(f"{n}") for n in range(20)))
    assert [result.value for result in results] == [str(n) for n in range(20)]


async def test_a_cancelled_call_is_interrupted_and_the_variables_stay(any_box: Sandbox) -> None:
    await any_box.run_python("kept = 1")
    call = asyncio.create_task(any_box.run_python("open('begun', 'w').close()\nwhile True: pass"))
    while not [entry for entry in await any_box.list() if entry.name == "begun"]:
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await any_box.run_python("kept")).value == "1"


async def test_memory_that_runs_out_is_an_error_that_keeps_the_variables() -> None:
    async with running(memory="128MiB") as box:
        await box.run_python("kept = 1")
        result = await box.run_python("x = bytearray(1 << 30)")
        assert (result.status, result.state_lost) == ("out_of_memory", False)
        assert "MemoryError" in str(result)
        assert (await box.run_python("kept")).value == "1"


async def test_packages_are_there_when_asked_for() -> None:
    async with running(packages=True) as box:
        assert (await box.run_python("import psutil; psutil.__name__")).value == "'psutil'"
        assert (await box.run("python3 -c 'import psutil; print(psutil.__name__)'")).stdout == "psutil\n"
    async with running() as box:
        assert "ModuleNotFoundError" in str(await box.run_python("import pyseccomp"))


def test_a_result_speaks_for_itself() -> None:
    result = PythonResult(None, "out\n", "", "ValueError: x", "killed", "", state_lost=True, files_lost=True)
    assert str(result).splitlines() == [
        "out",
        "ValueError: x",
        "[killed]",
        "[the sandbox was started anew: variables, and files that were written, are lost]",
    ]
