"""Rewards of programs and packages: what is good is told from what isn't."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from agentfly.envs.sandbox_tools import hidden_tests_reward, sandbox_tools, stdio_reward
from agentfly.envs.sandbox_tools.carrying import PROTECTED, is_protected, merged
from agentfly.envs.sandbox_tools.programs import program_in, same_lines
from agentfly.envs.sandbox_tools.testing import defined_tests, judged, read_results
from ray import cloudpickle
from sandbox_tools.boxed import SPEC, boxed

from agentfly.agent import Agent, Reward, RewardResult
from agentfly.context import Context
from agentfly.errors import ConfigError, RewardError
from agentfly.resources.sandbox import SandboxSpec

PACKAGED = SandboxSpec(name="packaged", memory="512MiB", disk="16MiB", packages=True, timeout=20)
CASES = [{"input": "1 2\n", "output": "3\n"}, {"input": ["5", "6"], "output": ["11"]}]
ADDS = "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n"
STDIO = stdio_reward(SPEC, program="add.py")
PARTIAL = stdio_reward(SPEC, program="add.py", partial=True)
ANSWER = stdio_reward(SPEC)
GIVEN = {"calc.py": "def add(a, b):\n    raise NotImplementedError\n"}
TEST = """\
import calc

def test_small():
    assert calc.add(1, 2) == 3

def test_large():
    assert calc.add(10**9, 1) == 10**9 + 1
"""
HIDDEN = {"tests/test_calc.py": TEST}
TESTED = hidden_tests_reward(PACKAGED)


async def score(reward: Reward, ctx: Context, response: str = "") -> RewardResult:
    return await reward(final_response=response, trajectory=None, ctx=ctx)


async def write(ctx: Context, spec: SandboxSpec = SPEC, **files: str) -> None:
    (tool,) = sandbox_tools(spec, ["write_file"])
    for path, content in files.items():
        result = await tool.call({"path": path.replace("__", "."), "content": content}, ctx)
        assert not result.is_error, result.content


async def test_a_program_is_scored_by_what_it_prints() -> None:
    async with boxed({"cases": CASES}) as ctx:
        await write(ctx, add__py=ADDS)
        assert await score(STDIO, ctx) == RewardResult(1.0, {"stdio_passed": 1.0})
        assert (await score(ANSWER, ctx, f"Here:\n```python\n{ADDS}```\nDone.")).value == 1.0
        assert (await score(ANSWER, ctx, "no code")).value == 0.0


@pytest.mark.parametrize(
    ("program", "fraction"),
    [
        ("print(3)", 0.5),
        ("print(3); raise SystemExit(1)", 0.0),
        ("while True: pass", 0.0),
        ("print(3, end=' \\n\\n')", 0.5),
        ("import os; os.kill(os.getppid(), 9)", 0.0),
        ("print('x' * 10**7)", 0.0),
        ("(", 0.0),
    ],
)
async def test_part_of_the_cases_is_part_of_the_reward_where_that_is_wanted(program: str, fraction: float) -> None:
    reward = stdio_reward(SPEC, program="add.py", partial=True, timeout=1.0)
    async with boxed({"cases": CASES}) as ctx:
        await write(ctx, add__py=program)
        assert await score(reward, ctx) == RewardResult(fraction, {"stdio_passed": fraction})


async def test_a_rollout_that_did_nothing_gets_nothing() -> None:
    async with boxed({"cases": CASES}) as ctx:
        assert (await score(STDIO, ctx)).value == 0.0


async def test_what_goes_on_in_the_background_is_gone_when_the_cases_run() -> None:
    async with boxed({"cases": CASES}) as ctx:
        await write(ctx, add__py="print(open('helper').read(), end='')")
        (shell,) = sandbox_tools(SPEC, ["shell"])
        await shell.call({"command": "mkfifo helper; setsid sh -c 'while true; do echo 3 > helper; done' &"}, ctx)
        assert (await score(PARTIAL, ctx)).value == 0.0


async def test_cases_that_are_none_are_the_rewards_fault() -> None:
    for cases in ("x", [], [{"input": "1"}], [{"input": 1, "output": "2"}], [{"input": "", "output": "x" * 5000}]):
        async with boxed({"cases": cases}) as ctx:
            with pytest.raises(RewardError):
                await score(STDIO, ctx)


async def test_hidden_tests_run_on_what_was_left() -> None:
    async with boxed({"files": GIVEN, "hidden_tests": HIDDEN}, PACKAGED) as ctx:
        (listed,) = sandbox_tools(PACKAGED, ["list_files"])
        assert (await listed.call({}, ctx)).content == "calc.py"
        assert (await score(TESTED, ctx)).value == 0.0
    async with boxed({"files": GIVEN, "hidden_tests": HIDDEN}, PACKAGED) as ctx:
        await write(ctx, PACKAGED, calc__py="def add(a, b):\n    return a + b\n")
        metrics = {"hidden_tests_passed": 1.0, "hidden_tests_tampered": 0.0}
        assert await score(TESTED, ctx) == RewardResult(1.0, metrics)
        assert (await score(hidden_tests_reward(PACKAGED, fresh=False), ctx)).value == 1.0
        await write(ctx, PACKAGED, calc__py="def add(a, b):\n    return 3\n")
        assert (await score(TESTED, ctx)).value == 0.0
        assert (await score(hidden_tests_reward(PACKAGED, partial=True), ctx)).value == 0.5


async def test_the_tests_that_count_may_be_named() -> None:
    task = {"files": GIVEN, "hidden_tests": HIDDEN, "ids": ["tests/test_calc.py::test_small"]}
    reward = hidden_tests_reward(PACKAGED, must_pass="ids")
    async with boxed(task, PACKAGED) as ctx:
        await write(ctx, PACKAGED, calc__py="def add(a, b):\n    return 3\n")
        assert (await score(reward, ctx)).value == 1.0


def test_rewards_name_the_fields_that_they_need_and_travel() -> None:
    agent = Agent(reward=hidden_tests_reward(PACKAGED, must_pass="ids"), prompt="x")
    with pytest.raises(ConfigError, match="asks for 'hidden_tests', 'ids'"):
        agent.check(["prompt"])
    agent.check(["hidden_tests", "ids"])
    for reward in (STDIO, TESTED):
        sent: Any = pickle.loads(cloudpickle.dumps(reward))
        assert sent.name == reward.name
        assert sent.missing([]) == reward.missing([])


def test_the_last_block_of_code_is_the_program() -> None:
    assert program_in("a\n```python\n1\n```\nb\n```\n2\n```\n") == "2\n"
    assert program_in("```py\n```") == ""
    assert program_in("``` 1 ```") is None
    assert same_lines("1 \n2\n", "1\n2")
    assert not same_lines("1\n2", "1 2")


def test_what_is_protected_stays_as_it_was() -> None:
    given = {"./conftest.py": "ours", "a/x.py": "old", "gone.py": ""}
    left = {"conftest.py": b"theirs", "sub/conftest.py": b"", "a/x.py": b"new", "tests": b"file", "e.dist-info/e": b""}
    files = merged(given, left, {"tests/test_x.py": "hidden"}, PROTECTED)
    assert files == {"conftest.py": "ours", "a/x.py": b"new", "tests/test_x.py": "hidden"}
    assert is_protected("a/b/c.py", ["a/b"])
    assert not is_protected("a/bc/c.py", ["a/b"])


def test_every_test_of_a_file_is_known_beforehand() -> None:
    source = "def test_a(): ...\nclass TestB:\n    def test_c(self): ...\n    def help(self): ...\ndef help(): ...\n"
    assert defined_tests("t.py", source) == ["t.py::test_a", "t.py::TestB::test_c"]
    with pytest.raises(ConfigError, match="no Python"):
        defined_tests("t.py", "def")


def test_only_signed_messages_in_their_order_count() -> None:
    assert read_results(b'abc [0, ["t", "passed"]]\nnonsense\n\xff\n', b"k" * 32) == []
    cases = [("a", "passed"), ("a", "failed"), ("b[1]", "passed"), ("b[2]", "passed"), ("c.py::x", "failed")]
    assert judged(cases, ["c.py"], "").passed(["a", "b", "none", "b[1]"]) == [False, True, False, True]
    assert judged(cases, ["c.py", "d.py"], "").passed(["b"]) == [False]
    assert not judged([("a", "passed"), ("c.py::x", "passed")], ["c.py"], "").passed(["a"])[0]
    assert not judged([*cases, ("", "tampered")], ["c.py"], "").passed(["b"])[0]
