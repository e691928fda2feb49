"""Work on a repository that is in an image, taken over as a patch; what the tests need, put over it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from shlex import quote
from typing import Any

from agentfly.envs.sandbox_tools import Workspace
from agentfly.envs.sandbox_tools.carrying import is_protected
from agentfly.envs.sandbox_tools.testing import TestRun, run_pytest

from agentfly.context import Context
from agentfly.errors import ToolError
from agentfly.resources.sandbox import Sandbox

_MOST = 16 << 20
_LEFT, _TESTS = ".agentfly-left.patch", ".agentfly-tests.patch"
# Nothing of the repository's own configuration is run.
_GIT = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.attributesFile=/dev/null"
_DIFF = (
    f"{_GIT} add -A -N . && {_GIT} diff --binary --no-color --no-ext-diff --no-textconv --no-renames --src-prefix=a/ "
    f"--dst-prefix=b/ HEAD > {_LEFT}"
)
_HEAD = re.compile(r"^diff --git a/(.*) b/\1$", re.MULTILINE)


def touched(patch: str) -> list[str]:
    """The files that a patch of git's is about."""
    return _HEAD.findall(patch)


def without(patch: str, patterns: Sequence[str]) -> str:
    """A patch without what it does to these files. Parts that can't be told whose they are go too."""
    starts = [match.start() for match in re.finditer(r"^diff --git ", patch, re.MULTILINE)]
    parts = [patch[start:end] for start, end in pairwise([*starts, len(patch)])]
    named = [(touched(part.partition("\n")[0]), part) for part in parts]
    return "".join(part for paths, part in named if paths and not is_protected(paths[0], patterns))


async def run_on_image(
    workspace: Workspace, ctx: Context, selected: Sequence[str], *, timeout: float, protected: Sequence[str]
) -> TestRun:
    """Run a task's tests in a fresh sandbox of its image, on what the rollout changed in the repository.

    Args:
        selected: the files with the tests.
        timeout: seconds for all tests.
        protected: as in `resolved`.
    """
    task, box = ctx.task, await workspace.sandbox(ctx)
    files: Mapping[str, Any] = {path: text for path, text in dict(task["test_files"] or {}).items() if text is not None}
    tests = str(task.get("test_patch") or "")
    kept = [*protected, *selected, *files, *touched(tests), _LEFT]
    try:
        await _run(box, _DIFF)
        left = (await box.read_bytes(_LEFT, max_bytes=_MOST + 1)).decode("utf-8", "surrogateescape")
        if len(left) > _MOST:
            return TestRun(log="the patch is too large")
        await box.renew(prepare=workspace.setup(task).get("prepare"))
        left = without(left, kept)
        trusted = await _others(box, touched(left))
        await _apply(box, _LEFT, left)
        if task.get("tests_from"):
            await _run(box, f"{_GIT} checkout -q {quote(task['tests_from'])} -- {' '.join(map(quote, selected))}")
        await _apply(box, _TESTS, tests)
        for path, text in files.items():
            await box.write(path, text)
        python = str(task.get("python") or "python3")
        return await run_pytest(box, selected, timeout=timeout, python=python, trusted=[*trusted, *selected, *files])
    except (OSError, ToolError) as error:
        return TestRun(log=str(error))


async def _others(box: Sandbox, changed: Sequence[str]) -> list[str]:
    """The files of the repository but those that the rollout changed."""
    await _run(box, f"{_GIT} ls-files -z > {_LEFT}")
    there = (await box.read_bytes(_LEFT, max_bytes=_MOST)).decode("utf-8", "surrogateescape").split("\0")
    return sorted({path for path in there if path}.difference(changed))


async def _apply(box: Sandbox, name: str, patch: str) -> None:
    if patch:
        await box.write(name, patch.encode("utf-8", "surrogateescape"))
        await _run(box, f"{_GIT} apply --whitespace=nowarn {name} && rm {name}")


async def _run(box: Sandbox, command: str) -> None:
    done = await box.run(command)
    if done.exit_code != 0:
        raise ToolError(f"{command!r} failed: {done}")
