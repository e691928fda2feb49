"""The reward: what should pass passes, what did pass still does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentfly.envs.sandbox_tools import Workspace
from agentfly.envs.sandbox_tools.carrying import PROTECTED
from agentfly.envs.sandbox_tools.needs import NeedsFields
from agentfly.envs.sandbox_tools.rewards import run_hidden
from agentfly.envs.swe.patches import run_on_image

from agentfly.agent import Reward, RewardResult, reward
from agentfly.context import Context, Task
from agentfly.errors import RewardError

FIELDS = ("problem_statement", "test_files", "fail_to_pass", "pass_to_pass")


def resolved(workspace: Workspace, *, timeout: float = 300.0, protected: Sequence[str] = PROTECTED) -> Reward:
    """A reward of 1 when all of `fail_to_pass` and `pass_to_pass` pass, in a fresh sandbox, and of 0 otherwise.

    Its metrics are the fractions of both, and whether something inside laid hands on pytest.

    Args:
        workspace: of the agent's tools.
        timeout: seconds for all tests.
        protected: names and paths that are as the task has them whatever the rollout did to them.
    """

    async def score(ctx: Context) -> RewardResult:
        task = ctx.task
        wanted, kept = _tests(task, "fail_to_pass"), _tests(task, "pass_to_pass")
        if not wanted:
            raise RewardError(f"task {task.id!r} has no tests that should pass afterwards")
        files = {str(path): text for path, text in dict(task["test_files"] or {}).items() if text is not None}
        selected = list(dict.fromkeys(test.partition("::")[0] for test in (*wanted, *kept)))
        if task.get(workspace.image) is not None:
            run = await run_on_image(workspace, ctx, selected, timeout=timeout, protected=protected)
        else:
            run = await run_hidden(workspace, ctx, files, timeout=timeout, selected=selected, protected=protected)
        mended, whole = run.passed(wanted), run.passed(kept)
        metrics = {
            "fail_to_pass": sum(mended) / len(mended),
            "pass_to_pass": sum(whole) / len(whole) if whole else 1.0,
            "tampered": float(run.tampered),
        }
        return RewardResult(float(all(mended) and all(whole)), metrics)

    return NeedsFields(reward(name="resolved", timeout=timeout + 120.0)(score), FIELDS)


def _tests(task: Task, field: str) -> list[str]:
    tests: Any = task[field]
    if isinstance(tests, str) or not isinstance(tests, Sequence):
        raise RewardError(f"task {task.id!r}: {field!r} must be a list of tests, got {tests!r:.80}")
    return [str(test) for test in tests]
