"""Agents found by name, and sent to a process that can't import where they come from."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from ray import cloudpickle

import agentfly.agent as af
from agentfly.errors import ConfigError

AGENT = '''
from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel
from typing_extensions import TypedDict

import agentfly.agent as af
from agentfly.context import Context, FromTask


class Colour(enum.Enum):
    RED = "red"


class Book(BaseModel):
    title: str
    parts: list[Book] = []


class Label(TypedDict):
    text: str
    size: Size


class Size(NamedTuple):
    width: int
    unit: Unit


Unit = Literal["cm", "in"]


@dataclasses.dataclass
class Shelf:
    book: Book
    colours: list[Colour] = dataclasses.field(default_factory=list)
    label: Label | None = None


def helper(text):
    return text.upper()


@af.tool
def store(shelf: Shelf, ctx: Context, owner: Annotated[str, FromTask]) -> str:
    """Store, and know itself."""
    assert store.name == "store" and agent.max_turns == 3
    return helper(f"{owner} {shelf.book.parts[0].title} {shelf.colours[0].value} {shelf.label}")


@af.tool
class Search:
    def __init__(self, index):
        self.index = index

    async def __call__(self, query: str) -> str:
        return self.index[query]


class Board:
    def __init__(self, name):
        self.name = name

    @af.tool
    async def move(self, uci: str) -> str:
        return f"{self.name} {uci}"


@af.reward
def exact(final_response: str, answer: str) -> float:
    return float(helper(final_response) == answer)


agent = af.Agent(
    tools=[store, Search({"a": "apple"}), Board("b").move],
    reward=af.weighted({exact: 2.0}),
    prompt=lambda task: helper(task["question"]),
    max_turns=3,
)
'''

DUMP = """
if __name__ == "__main__":
    import sys
    from ray import cloudpickle
    with open(sys.argv[1], "wb") as file:
        cloudpickle.dump(agent, file)
"""

DUMP_FILE = """
import sys
from ray import cloudpickle
from agentfly.agent import load_agent
agent = load_agent(sys.argv[2])
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump(agent, file)
"""

PLAY = """
import asyncio, pickle, sys
from agentfly.context import Context, Task
with open(sys.argv[1], "rb") as file:
    agent = pickle.load(file)
task = Task("t", {"owner": "me", "answer": "YES", "question": "why"})
ctx = Context(rollout_id="r", group_id="g", task=task)
shelf = {"book": {"title": "x", "parts": [{"title": "y"}]}, "colours": ["red"]}
shelf["label"] = {"text": "t", "size": [1, "cm"]}
arguments = [{"shelf": shelf}, {"query": "a"}, {"uci": "e4"}]
async def main():
    agent.check(task.fields)
    print(agent.open(task)[0]["content"])
    for tool, sent in zip(agent.tools, arguments):
        print((await tool.call(sent, ctx)).content)
    print((await agent.tools[0].call({"shelf": {"colours": ["blue"]}}, ctx)).content.splitlines()[1])
    print(await agent.reward(final_response="yes", trajectory=None, ctx=ctx))
asyncio.run(main())
"""

PLAYED = """WHY
ME Y RED {'TEXT': 'T', 'SIZE': SIZE(WIDTH=1, UNIT='CM')}
apple
b e4
- shelf.book: missing
RewardResult(value=2.0, metrics={'exact': 1.0})
"""


def python(folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("origin", ["main", "file"])
def test_an_agent_plays_where_its_source_is_not(tmp_path: Path, origin: str) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    sent = str(tmp_path / "agent.pickle")
    source = home / "my_agent.py"
    source.write_text(AGENT + (DUMP if origin == "main" else ""))
    if origin == "main":
        python(home, "my_agent.py", sent)
    else:
        python(home, "-c", DUMP_FILE, sent, "my_agent.py:agent")
    source.unlink()
    assert python(away, "-c", PLAY, sent) == PLAYED


def test_an_importable_agent_travels_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib_agent.py").write_text(AGENT + "\nimport threading\nlock = threading.Lock()\n")
    monkeypatch.syspath_prepend(tmp_path)
    agent = af.load_agent("lib_agent:agent", folder=tmp_path)
    try:
        for tool, name in ((agent.tools[0], b"store"), (agent.tools[2], b"Board")):
            sent = cloudpickle.dumps(tool)
            assert b"lib_agent" in sent
            assert name in sent
            assert b"helper" not in sent, "the function's body went along"
        assert cloudpickle.loads(cloudpickle.dumps(agent.tools[0])) is agent.tools[0]
        exact = sys.modules["lib_agent"].exact
        assert cloudpickle.loads(cloudpickle.dumps(exact)) is exact
    finally:
        del sys.modules["lib_agent"]


def test_a_file_is_loaded_once_and_finds_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_it.py").write_text("limit = 5\n")
    (tmp_path / "agent.py").write_text(
        textwrap.dedent("""
            import agentfly.agent as af
            from neighbour_of_it import limit
            class holder:
                agent = af.Agent(max_turns=limit)
        """)
    )
    first = af.load_agent("agent.py:holder.agent", folder=tmp_path)
    assert first.max_turns == 5
    assert af.load_agent(str(tmp_path / "agent.py") + ":holder.agent") is first
    other = tmp_path / "other"
    other.mkdir()
    (other / "agent.py").write_text("import agentfly.agent as af\nagent = af.Agent(max_turns=9)\n")
    assert af.load_agent("agent.py:agent", folder=other).max_turns == 9


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("no_colon", ["'module:attribute'"]),
        (":agent", ["'module:attribute'"]),
        ("absent.py:agent", ["there is no file", "absent.py"]),
        ("no_such_module_here:agent", ["'no_such_module_here' can't be imported", "ModuleNotFoundError"]),
        ("broken.py:agent", ["'broken.py' can't be imported", "ZeroDivisionError"]),
        ("exits.py:agent", ["'exits.py' can't be imported", "SystemExit"]),
        ("fine.py:agnet", ["no attribute 'agnet'", "it has: agent, other"]),
        ("fine.py:other", ["must name an Agent", "int"]),
    ],
)
def test_what_cannot_be_found_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, words: list[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "exits.py").write_text("raise SystemExit(2)\n")
    (tmp_path / "fine.py").write_text("from agentfly.agent import Agent as _Agent\nagent = _Agent()\nother = 3\n")
    with pytest.raises(ConfigError) as caught:
        af.load_agent(reference, folder=tmp_path)
    line = str(caught.value)
    assert all(word in line for word in words), line
    assert "\n" not in line
