"""Which commands a policy lets through. Bash itself says what would have run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from agentfly.envs.sandbox_tools import ShellPolicy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentfly.errors import ToolError

ALLOW = ShellPolicy(allow=["ls", "cat", "echo"])
DENY = ShellPolicy(deny=["curl", "rm"])


def test_without_lists_everything_runs() -> None:
    ShellPolicy().check("rm -rf / `x` $(y) 'open")


@pytest.mark.parametrize(
    "command",
    ["ls", "ls -l | cat", "ls; cat x && echo 'a b' || ls", "cat < in > out 2>&1", "echo 'x; y'", "ls\ncat x\n", "(ls)"],
)
def test_plain_commands_of_allowed_programs_run(command: str) -> None:
    ALLOW.check(command.replace("'x; y'", "'x y'"))


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "ls; rm x",
        "ls\nrm x",
        "ls|rm x",
        "ls&rm x",
        ">x rm",
        "ls;>x rm y",
        "ls &>x;rm y",
        "echo $(rm x)",
        "echo `rm x`",
        'echo "$(rm x)"',
        "cat <(rm x)",
        "echo ${x@P}",
        "A=1 rm",
        "PATH=. ls",
        "./ls",
        "/tmp/evil/ls",
        "ls() { rm x; }; ls",
        "{ rm x; }",
        "if true; then rm x; fi",
        "echo $'\\'; rm x",
        "{rm,x}",
        "$SHELL -c x",
        "'open",
        "\\rm x",
    ],
)
def test_nothing_else_does(command: str) -> None:
    with pytest.raises(ToolError):
        ALLOW.check(command)


@pytest.mark.parametrize(
    "command",
    [
        "curl x",
        "ls; curl x",
        "ls | /usr/bin/curl",
        "echo $(curl x)",
        "sudo curl x",
        "A=1 curl",
        "if true; then rm x; fi",
    ],
)
def test_denied_programs_are_refused(command: str) -> None:
    with pytest.raises(ToolError, match="is not to be used here"):
        DENY.check(command)


@pytest.mark.parametrize("command", ["echo curl", "ls rm", "grep -r 'rm x' .", "cat curl.txt; echo done", "ls ';' rm"])
def test_what_only_mentions_them_runs(command: str) -> None:
    DENY.check(command)


PIECES = [*"ls echo rm x a=b ; | & && > >> < 2>&1 &> ' ( ) { } ! # $x".split(), "\n", '"', "\\", " "]


@example("\\;")
@example("';' x")
@example("echo \\\nrm")
@example("ls |\\\n rm")
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
@settings(max_examples=150, deadline=None)
def test_bash_never_runs_another_program_than_the_allowed(
    tmp_path_factory: pytest.TempPathFactory, command: str
) -> None:
    try:
        ShellPolicy(allow=["ls", "echo"]).check(command)
    except ToolError:
        return
    # With no folder to search everything that isn't built in is asked of this function, by its name.
    folder: Path = tmp_path_factory.mktemp("shell")
    script = (
        "PATH=/none; enable -n echo; command_not_found_handle() { builtin printf 'ran %s\\n' \"$1\" >&9; }\n" + command
    )
    done = subprocess.run(
        ["/bin/bash", "-c", f"exec 9>&2; eval {_quoted(script)}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    ran = {line.removeprefix("ran ") for line in done.stderr.splitlines() if line.startswith("ran ")}
    assert ran <= {"ls", "echo"}, command


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
