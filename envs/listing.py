"""The list itself. An entry names what it needs; nothing of it is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Entry:
    """One environment.

    Attributes:
        name: also the folder of those that are prebuilt.
        what: in a few words.
        size: of what comes with it, or with the packages that it needs.
        licence: of the environment's code and data.
        modules: that its hosts import.
        extra: of agentfly-rl that installs them.
        programs: that must be on PATH.
        agent, tasks: `module:attribute` of its agent and of the function that makes its tasks; None where they are
            made by a call with arguments.
        data: where full data is from, if there is more than what comes along.
    """

    name: str
    what: str
    size: str
    licence: str
    modules: tuple[str, ...] = ()
    extra: str = ""
    programs: tuple[str, ...] = ()
    agent: str | None = None
    tasks: str | None = None
    data: str = ""

    @property
    def gym_name(self) -> str:
        """Its name for `gymnasium.make`, without namespace and version."""
        return "".join(part.capitalize() for part in self.name.split("_"))


def _prebuilt(
    name: str, what: str, *, size: str, modules: tuple[str, ...] = (), extra: str = "", data: str = ""
) -> Entry:
    place = f"agentfly.envs.{name}"
    agent, tasks = f"{place}:agent", f"{place}:make_tasks"
    return Entry(name, what, size, "Apache-2.0", modules, extra, agent=agent, tasks=tasks, data=data)


_SANDBOX = ("pyseccomp",)

PREBUILT: Final = (
    _prebuilt("calculator", "word problems with a calculator", size="any number of tasks", data="GSM8K"),
    _prebuilt("search", "questions answered by searching", size="300 passages", data="wiki-18, NQ, HotpotQA"),
    _prebuilt("webshop", "a web shop in words", size="1,200 products, or any number"),
    _prebuilt("household", "a household in words, six kinds of tasks", size="any number of houses"),
    _prebuilt("chess", "mates, against an opponent", size="200 positions", modules=("chess",), extra="chess"),
    _prebuilt("games", "guess, break a code, Nim", size="any number of games"),
    _prebuilt(
        "swe",
        "repositories to mend",
        size="12 tasks",
        modules=_SANDBOX,
        extra="sandbox",
        data="SWE-bench, SWE-smith, R2E",
    ),
)

ADAPTERS: Final = (
    Entry("gym", "any Gymnasium environment", "75 MB", "MIT", ("gymnasium",), "gym"),
    Entry("minigrid", "MiniGrid and BabyAI in words", "60 MB", "Apache-2.0", ("gymnasium", "minigrid"), "minigrid"),
    Entry("textarena", "games of TextArena", "60 MB", "MIT", ("textarena",), "textarena"),
    Entry("reasoning", "104 generators of reasoning-gym", "100 MB", "Apache-2.0", ("reasoning_gym",), "reasoning"),
    Entry(
        "scienceworld",
        "30 kinds of experiments in a simulator",
        "9 MB",
        "Apache-2.0",
        ("scienceworld",),
        "scienceworld",
        ("java",),
    ),
    Entry("mcp", "tools of any MCP server, stdio or HTTP", "small", "MIT", ("mcp",), "mcp"),
)
