from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
from agentfly.envs.catalogue import CATALOGUE, verdict
from agentfly.envs.listing import Entry
from suite.roster import SUITES
from typer.testing import CliRunner

from agentfly.agent import load_agent
from agentfly.cli.main import app
from agentfly.errors import ConfigError
from agentfly.training.data import load_tasks
from agentfly.training.loading import load_job


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_environment_has_a_job_and_a_page(suite: object) -> None:
    folder = Path(str(files(f"agentfly.envs.{suite.name}")))  # type: ignore[attr-defined]
    job = load_job(folder / "job.yaml", [])
    agent, tasks, held_out = load_agent(str(job.agent)), load_tasks(str(job.tasks)), load_tasks(str(job.eval_tasks))
    assert len(tasks) >= 100 and len(held_out) >= 10
    for task in (tasks[0], held_out[0]):
        agent.check(task.fields)
    assert 8 <= len((folder / "README.md").read_text().splitlines()) <= 40


def test_functions_that_make_no_tasks_are_an_error() -> None:
    with pytest.raises(ConfigError, match="must give a list of tasks"):
        load_tasks("platform:node")
    with pytest.raises(ConfigError, match="no attribute 'nothing'"):
        load_tasks("platform:nothing")


def test_the_list_says_what_runs_here() -> None:
    told = CliRunner().invoke(app, ["envs", "--json"])
    assert told.exit_code == 0
    rows = {row["name"]: row for row in json.loads(told.stdout)}
    assert rows.keys() == {entry.name for entry in CATALOGUE}
    assert all(row["size"] and row["licence"] for row in rows.values())
    assert rows["household"]["runs_here"]
    table = CliRunner().invoke(app, ["envs"])
    assert "household" in table.stdout


def test_what_is_missing_is_said() -> None:
    entry = Entry("x", "x", "x", "x", ("no_such_module",), "some", ("no-such-program",))
    assert verdict(entry).missing == ("no_such_module", "no-such-program")
    assert verdict(entry).advice == "pip install 'agentfly-rl[some]'; install no-such-program"
    assert not verdict(entry).runs


@pytest.mark.parametrize("entry", [entry for entry in CATALOGUE if entry.agent], ids=lambda entry: entry.name)
def test_what_is_listed_is_there(entry: Entry) -> None:
    assert entry.agent is not None and entry.tasks is not None
    load_agent(entry.agent)
    assert load_tasks(entry.tasks)
