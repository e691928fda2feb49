"""The tasks that ship: each can be solved, and nothing is gained by doing nothing."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from agentfly.envs.swe import SANDBOX, agent, make_tasks
from agentfly.envs.swe.repositories import pack, repository, shipped
from sandbox_tools.boxed import boxed

from agentfly.agent import RewardResult
from agentfly.context import Context, Task
from agentfly.errors import ConfigError

TASKS = make_tasks()
TOOLS = {tool.name: tool for tool in agent.tools}


async def score(ctx: Context) -> RewardResult:
    assert agent.reward is not None
    return await agent.reward(final_response="", trajectory=None, ctx=ctx)


def test_tasks_are_the_same_each_time_and_have_all_that_the_agent_asks_for() -> None:
    assert len({task.id for task in TASKS}) == len(TASKS) == 12
    assert make_tasks() == TASKS
    for task in TASKS:
        agent.check(task.fields)
        assert not {"solution", "test_files"} & set(agent.open(task)[0])
        assert task["solution"]["new"] not in agent.open(task)[-1]["content"]
        assert "tests/test_issue.py" not in repository(task)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
async def test_the_right_edit_is_rewarded_and_no_edit_is_not(task: Task) -> None:
    async with boxed(task.fields, SANDBOX) as ctx:
        nothing = await score(ctx)
        assert nothing.value == 0.0
        assert nothing.metrics == {"fail_to_pass": 0.0, "pass_to_pass": 1.0, "tampered": 0.0}
    async with boxed(task.fields, SANDBOX) as ctx:
        edited = await TOOLS["edit_file"].call(task["solution"], ctx)
        assert not edited.is_error, edited.content
        assert (await score(ctx)).value == 1.0


async def test_an_edit_that_breaks_something_else_is_not_rewarded() -> None:
    task = TASKS[0]
    async with boxed(task.fields, SANDBOX) as ctx:
        await TOOLS["edit_file"].call(task["solution"], ctx)
        await TOOLS["write_file"].call({"path": "intervals/text.py", "content": "x ="}, ctx)
        await TOOLS["shell"].call({"command": "rm -r tests"}, ctx)
        result = await score(ctx)
    assert (result.value, result.metrics["pass_to_pass"]) == (0.0, 0.0)


def test_archives_of_all_forms_are_unpacked(tmp_path: Path) -> None:
    files = {"repo-1.0/a.py": b"1", "repo-1.0/sub/b.py": b"2"}
    with tarfile.open(tmp_path / "r.tar.xz", "w:xz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("repo-1.0/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with zipfile.ZipFile(tmp_path / "r.zip", "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    for path in (tmp_path / "r.tar.xz", tmp_path / "r.zip"):
        assert repository(Task("t", {"archive": str(path)})) == {"a.py": b"1", "sub/b.py": b"2"}
    assert repository(Task("t", {"archive": pack({"a.py": "1", "b.py": "2"})})) == {"a.py": b"1", "b.py": b"2"}
    assert repository(Task("t", {})) == {}


@pytest.mark.parametrize(
    ("archive", "told"),
    [("none.tar", "can't be read"), ("!", "neither a path"), (pack({})[:8], "unpacked"), (3, "path or")],
)
def test_what_is_no_archive_is_told(archive: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        repository(Task("t", {"archive": archive}))


def test_repositories_have_no_tests_of_the_issues() -> None:
    assert sorted(shipped("ledger")) == [
        "README.md",
        "ledger/__init__.py",
        "ledger/book.py",
        "ledger/money.py",
        "tests/test_book.py",
        "tests/test_money.py",
    ]
