"""Tasks whose repository is in an image: work is taken over as a patch. The image here is a folder that git knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from agentfly.envs.sandbox_tools import Workspace, sandbox_tools
from agentfly.envs.swe import make_agent, make_tasks, r2e_gym_task, swe_bench_task, swe_smith_task
from agentfly.envs.swe.patches import touched, without
from agentfly.envs.swe.repositories import repository
from sandbox_tools.boxed import boxed

from agentfly.agent import RewardResult
from agentfly.context import Context, Task
from agentfly.errors import ConfigError
from agentfly.resources.sandbox import SandboxSettings, SandboxSpec, providers
from agentfly.resources.sandbox.bubblewrap.provider import BubblewrapProvider
from agentfly.resources.sandbox.provider import Capability, Command
from agentfly.resources.sandbox.remote import RemoteRuntime

TASK = make_tasks()[0]
GIT = "git -c user.name=n -c user.email=e -c init.defaultBranch=main"
ISSUE = "tests/test_issue.py"
PATCH = f"""\
diff --git a/{ISSUE} b/{ISSUE}
new file mode 100644
--- /dev/null
+++ b/{ISSUE}
@@ -0,0 +1,5 @@
+from intervals import *
+
+
+def test_touching():
+    assert merge([(1, 3), (3, 5)]) == [(1, 5)]
"""


class ImageProvider(BubblewrapProvider):
    """Another package's provider: an image is a repository at its first commit, with a second one on a branch."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities | {"image"}

    async def start(self, settings: SandboxSettings) -> RemoteRuntime:
        runtime = await super().start(settings)
        own = {"tests/conftest.py": b"class Anything:\n    def __eq__(self, other): return True\n"}
        for path, content in {**repository(TASK), **own}.items():
            await runtime.write(path, content)
        steps = [
            "init -q",
            "add .",
            "commit -qm one",
            "checkout -qb branch",
            "rm -q tests/test_algebra.py",
            "commit -qm x",
        ]
        command = " && ".join(f"{GIT} {step}" for step in [*steps, "checkout -q main"])
        done = await runtime.run(Command(command, 20.0, b"", {}, "."))
        assert done.exit_code == 0, done
        return runtime


class Found:
    name = "imaged"

    def load(self) -> type[ImageProvider]:
        return ImageProvider


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> SandboxSpec:
    monkeypatch.setattr(providers, "entry_points", lambda group: [Found()] if group == "agentfly.sandboxes" else [])
    return SandboxSpec(name="imaged", provider="imaged", packages=True, timeout=20)


def row(**more: Any) -> dict[str, Any]:
    ids = {"FAIL_TO_PASS": json.dumps([f"{ISSUE}::test_touching"]), "PASS_TO_PASS": ["tests/test_text.py::test_parse"]}
    return {"instance_id": "a__b-1", "problem_statement": "It is broken.", "test_patch": PATCH, **ids, **more}


def here(task: Task) -> Mapping[str, Any]:
    return {**task.fields, "python": "python3"}


async def score(ctx: Context, spec: SandboxSpec) -> RewardResult:
    reward = make_agent(spec).reward
    assert reward is not None
    return await reward(final_response="", trajectory=None, ctx=ctx)


async def use(ctx: Context, spec: SandboxSpec, name: str, **arguments: Any) -> None:
    (tool,) = sandbox_tools(Workspace(spec, repository), [name])  # type: ignore[list-item]
    result = await tool.call(arguments, ctx)
    assert not result.is_error, result.content


@pytest.mark.slow
async def test_a_row_of_swe_bench_is_played_on_its_image(spec: SandboxSpec) -> None:
    task = swe_bench_task(row())
    assert task["image"] == "swebench/sweb.eval.x86_64.a_1776_b-1:latest"
    async with boxed(here(task), spec) as ctx:
        assert (await score(ctx, spec)).metrics == {"fail_to_pass": 0.0, "pass_to_pass": 1.0, "tampered": 0.0}
    async with boxed(here(task), spec) as ctx:
        await use(ctx, spec, "edit_file", **TASK["solution"])
        await use(ctx, spec, "write_file", path="new/file.py", content="x = 1\n")
        await use(ctx, spec, "write_file", path="conftest.py", content="raise SystemExit\n")
        await use(ctx, spec, "write_file", path=ISSUE, content="def test_touching(): pass\n")
        assert (await score(ctx, spec)).value == 1.0
        await use(ctx, spec, "shell", command="test -e new/file.py && test ! -e conftest.py")
    async with boxed(here(task), spec) as ctx:
        await use(ctx, spec, "write_file", path=ISSUE, content="def test_touching(): pass\n")
        await use(ctx, spec, "shell", command="rm -rf .git")
        assert (await score(ctx, spec)).value == 0.0


@pytest.mark.slow
async def test_a_row_of_swe_smith_brings_tests_back_from_the_commit_before(spec: SandboxSpec) -> None:
    ids = {"FAIL_TO_PASS": ["tests/test_algebra.py::test_total"], "PASS_TO_PASS": []}
    task = swe_smith_task(row(instance_id="branch", image_name="i", **ids))
    async with boxed(here(task), spec) as ctx:
        await use(ctx, spec, "shell", command="test ! -e tests/test_algebra.py")
        assert (await score(ctx, spec)).value == 1.0


@pytest.mark.slow
async def test_a_row_of_r2e_gym_brings_its_tests_along(spec: SandboxSpec) -> None:
    code = "from intervals import merge\n\nclass TestMerge:\n"
    code += "    def test_touching(self):\n        assert merge([(1, 3), (3, 5)])[1:] == []\n"
    run = {"test_file_names": ["test_1.py"], "test_file_codes": [code]}
    expected = {"TestMerge.test_touching": "PASSED", "TestMerge.test_other": "FAILED"}
    columns = {"repo_name": "intervals", "commit_hash": "0" * 40, "docker_image": "i"}
    contents = {"execution_result_content": json.dumps(run), "expected_output_json": json.dumps(expected)}
    task = r2e_gym_task({**columns, **contents, "problem_statement": "It is broken."})
    assert task["fail_to_pass"] == ["r2e_tests/test_1.py::TestMerge::test_touching"]
    async with boxed(here(task), spec) as ctx:
        assert (await score(ctx, spec)).value == 0.0
    async with boxed(here(task), spec) as ctx:
        await use(ctx, spec, "edit_file", **TASK["solution"])
        assert (await score(ctx, spec)).value == 1.0


def test_rows_that_do_not_fit_are_told() -> None:
    with pytest.raises(ConfigError, match="no 'test_patch'; its columns are"):
        swe_bench_task({name: value for name, value in row().items() if name != "test_patch"})
    with pytest.raises(ConfigError, match="'test_x \\(mod.Case\\)', which is no test of pytest's"):
        swe_bench_task(row(FAIL_TO_PASS='["test_x (mod.Case)"]'))
    with pytest.raises(ConfigError, match="image_name"):
        swe_smith_task(row())
    with pytest.raises(ConfigError, match="not as R2E-Gym"):
        columns = {"repo_name": "r", "commit_hash": "0", "docker_image": "i", "problem_statement": "p"}
        r2e_gym_task({**columns, "execution_result_content": "{}", "expected_output_json": "{}"})


def test_an_image_needs_a_provider_that_has_such() -> None:
    with pytest.raises(ConfigError, match="image: the provider 'bubblewrap' has no images"):
        SandboxSpec(image="i")


def test_patches_lose_what_is_protected() -> None:
    other = PATCH.replace(ISSUE, "a/b.py")
    assert touched(PATCH + other) == [ISSUE, "a/b.py"]
    assert without(PATCH + other, ["test_issue.py"]) == other
    assert without("diff --git a/x b/y\nrename from x\n" + other, []) == other
