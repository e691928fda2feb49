"""Rewards of code: programs by what they print, packages by tests that the rollout never saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentfly.envs.sandbox_tools.carrying import PROTECTED, TooMuch, left_in, merged, unchanged
from agentfly.envs.sandbox_tools.needs import NeedsFields
from agentfly.envs.sandbox_tools.programs import fitting, program_in, same_lines
from agentfly.envs.sandbox_tools.testing import TestRun, defined_tests, run_pytest
from agentfly.envs.sandbox_tools.workspace import Files, Workspace

from agentfly.agent import Reward, RewardResult, reward
from agentfly.context import Context, Task
from agentfly.errors import ConfigError, RewardError, ToolError
from agentfly.resources.sandbox import Sandbox, SandboxSpec

_GRACE = 120.0


def stdio_reward(
    where: SandboxSpec | Workspace,
    *,
    program: str | None = None,
    cases: str = "cases",
    command: str = "python3 {program}",
    timeout: float = 10.0,
    partial: bool = False,
    fresh: bool = True,
    same: Callable[[str, str], bool] = same_lines,
    name: str = "stdio",
) -> Reward:
    """A reward of programs that read and print: 1 when every case comes out as expected.

    What is expected never enters a sandbox, so nothing inside can know or forge it.

    Args:
        where: of the agent's tools too.
        program: the file that the rollout leaves; None takes the last block of code of its final response.
        cases: the task's field with a list of `{"input": ..., "output": ...}`.
        command: runs it; `{program}` is its path.
        timeout: seconds of a case.
        partial: the fraction of cases, instead of all or nothing.
        fresh: cases run in a fresh sandbox with the files of the workspace, where nothing of the rollout goes on.
        same: whether an output (the second) is what was expected.
        name: in metrics and errors.

    Returns:
        A reward with the metric `<name>_passed`, the fraction of cases.
    """
    workspace = where if isinstance(where, Workspace) else Workspace(where)
    path = program if program is not None else "solution.py"

    async def stdio(final_response: str, ctx: Context) -> RewardResult:
        wanted = _cases(ctx.task, cases)
        box = await workspace.sandbox(ctx)
        if fresh:
            await _freshen(box, workspace, ctx, hidden={})
        if program is None:
            code = program_in(final_response)
            if code is None:
                return RewardResult(0.0, {f"{name}_passed": 0.0})
            await box.write(path, code)
        passed = 0
        for given, expected in wanted:
            if len(expected.encode()) > workspace.spec.max_output:
                raise RewardError(f"task {ctx.task.id!r}: an expected output is larger than the sandbox's max_output")
            done = await _run(box, command.format(program=path), given, timeout)
            if done is not None and same(expected, done):
                passed += 1
            elif not partial:
                break
        fraction = passed / len(wanted)
        return RewardResult(fraction if partial else float(passed == len(wanted)), {f"{name}_passed": fraction})

    return NeedsFields(reward(name=name, timeout=None)(stdio), [cases])


def hidden_tests_reward(
    where: SandboxSpec | Workspace,
    *,
    tests: str = "hidden_tests",
    must_pass: str | None = None,
    partial: bool = False,
    fresh: bool = True,
    timeout: float = 120.0,
    protected: Sequence[str] = PROTECTED,
    python: str = "python3",
    name: str = "hidden_tests",
) -> Reward:
    """A reward of packages: 1 when the tests pass that were put there after the rollout had ended.

    The sandbox's Python needs pytest: `SandboxSpec(packages=True)`, or an image that has it.

    Args:
        where: of the agent's tools too.
        tests: the task's field with the test files, by path. They replace what the rollout left in their place.
        must_pass: the task's field with the node ids that count; None takes all tests of these files.
        partial: the fraction of tests, instead of all or nothing.
        fresh: tests run in a fresh sandbox with the files of the workspace, where nothing of the rollout goes on. In
            the rollout's own they see its state, and what it left running may see and change them.
        timeout: seconds for all tests.
        protected: names and paths, with `*`, that are as the task has them whatever the rollout did to them.
        python: the command of a Python that has pytest.
        name: in metrics and errors.

    Returns:
        A reward with the metrics `<name>_passed`, the fraction of tests, and `<name>_tampered`.
    """
    workspace = where if isinstance(where, Workspace) else Workspace(where)

    async def hidden_tests(ctx: Context) -> RewardResult:
        files = _test_files(ctx.task, tests)
        wanted = [str(test) for test in ctx.task[must_pass]] if must_pass is not None else _all_tests(files)
        if not wanted:
            raise RewardError(f"task {ctx.task.id!r} has no tests in {tests!r}")
        run = await run_hidden(workspace, ctx, files, timeout=timeout, protected=protected, python=python, fresh=fresh)
        passed = run.passed(wanted)
        fraction = sum(passed) / len(passed)
        metrics = {f"{name}_passed": fraction, f"{name}_tampered": float(run.tampered)}
        return RewardResult(fraction if partial else float(all(passed)), metrics)

    needed = [tests] if must_pass is None else [tests, must_pass]
    return NeedsFields(reward(name=name, timeout=timeout + _GRACE)(hidden_tests), needed)


async def run_hidden(
    workspace: Workspace,
    ctx: Context,
    files: Files,
    *,
    timeout: float,
    selected: Sequence[str] | None = None,
    protected: Sequence[str] = PROTECTED,
    python: str = "python3",
    fresh: bool = True,
) -> TestRun:
    """Run tests that a rollout never saw on what it left in its workspace.

    Args:
        files: by path.
        selected: the paths or node ids to run; None runs these files.
        timeout, protected, python, fresh: as in `hidden_tests_reward`.
    """
    box = await workspace.sandbox(ctx)
    trusted = list(files)
    try:
        if fresh:
            trusted = await _freshen(box, workspace, ctx, hidden=files, protected=protected)
        else:
            for path, content in files.items():
                await box.write(path, content)
        return await run_pytest(box, list(selected or files), timeout=timeout, python=python, trusted=trusted)
    except (OSError, ToolError) as error:  # what the rollout left doesn't fit, or brought the sandbox down
        return TestRun(log=str(error))


async def _freshen(
    box: Sandbox, workspace: Workspace, ctx: Context, *, hidden: Files, protected: Sequence[str] = PROTECTED
) -> list[str]:
    """Go on in a fresh sandbox with what the rollout left; of what is too much, nothing.

    Returns:
        The files that the rollout has not written.
    """
    try:
        left = await left_in(box, patterns=protected)
    except TooMuch:
        left = {}
    files = merged(workspace.files_of(ctx.task), left, hidden, protected)
    await box.renew(files)
    return unchanged(files, [workspace.files_of(ctx.task), hidden])


async def _run(box: Sandbox, command: str, given: str, timeout: float) -> str | None:
    """What a program printed; None when it did not end well."""
    try:
        done = await box.run(command, stdin=given, timeout=timeout)
    except OSError:
        return None
    return done.stdout if done.exit_code == 0 and done.status == "ok" else None


def _cases(task: Task, field: str) -> list[tuple[str, str]]:
    cases: Any = task.get(field)
    if not isinstance(cases, Sequence) or isinstance(cases, str) or not cases:
        raise RewardError(f"task {task.id!r}: {field!r} must be a list of cases, got {cases!r:.80}")
    try:
        return [(fitting(case["input"]), fitting(case["output"])) for case in cases]
    except (KeyError, TypeError) as error:
        raise RewardError(f"task {task.id!r}: a case of {field!r} lacks an input or an output: {error}") from None


def _test_files(task: Task, field: str) -> Files:
    files: Any = task.get(field)
    if not isinstance(files, Mapping) or not files:
        raise RewardError(f"task {task.id!r}: {field!r} must map paths to test files, got {files!r:.80}")
    return {path: content for path, content in files.items() if content is not None}


def _all_tests(files: Files) -> list[str]:
    try:
        return [
            test
            for path, content in files.items()
            if path.endswith(".py") and path.rpartition("/")[2] != "conftest.py"
            for test in defined_tests(path, content if isinstance(content, str) else content.decode())
        ]
    except (ConfigError, UnicodeDecodeError) as error:
        raise RewardError(str(error)) from None
