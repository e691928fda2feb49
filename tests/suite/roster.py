"""The environments that all tests of the suite run on, and how an episode is played without Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from agentfly.envs import calculator, chess, games, household, search, webshop
from agentfly.envs.calculator.agent import oracle as calculator_oracle
from agentfly.envs.chess.tasks import oracle as chess_oracle
from agentfly.envs.episodes import Move
from agentfly.envs.games.tasks import oracle as games_oracle
from agentfly.envs.gym import ToolEnv
from agentfly.envs.household.tasks import oracle as household_oracle
from agentfly.envs.search.agent import oracle as search_oracle
from agentfly.envs.webshop.agent import oracle as webshop_oracle

from agentfly.agent import Agent
from agentfly.context import Task
from agentfly.resources import ResourceSpec


@dataclass(frozen=True, eq=False)
class Suite:
    """One environment.

    Attributes:
        words: that a random policy tries.
        spec: of its episodes; None where it has none.
        act: a call's arguments as an episode's action.
    """

    name: str
    agent: Agent
    make_tasks: Callable[..., list[Task]]
    oracle: Callable[[Task], Sequence[Move]]
    words: Sequence[str]
    spec: ResourceSpec[Any] | None = None
    act: Callable[[Move], str] = lambda move: str(next(iter(move.arguments.values())))


def _shopping(move: Move) -> str:
    return f"{move.tool}[{next(iter(move.arguments.values()))}]"


SUITES = (
    Suite("calculator", calculator.agent, calculator.make_tasks, calculator_oracle, ["2*3", "10-4", "7", "(1+2)*30"]),
    Suite("search", search.agent, search.make_tasks, search_oracle, ["city", "river", "painter", "Kaba", "1700"]),
    Suite(
        "webshop",
        webshop.agent,
        webshop.make_tasks,
        webshop_oracle,
        ["chair", "shirt", "b00001", "buy now", "small", "black", "back to search", "next >"],
        webshop.SHOP,
        _shopping,
    ),
    Suite(
        "household",
        household.agent,
        household.make_tasks,
        household_oracle,
        ["go to cabinet 1", "open cabinet 1", "go to desk 1", "use lamp", "take mug 1 from cabinet 1", "look"],
        household.HOUSEHOLD,
    ),
    Suite("chess", chess.agent, chess.make_tasks, chess_oracle, ["e2e4", "Nf3", "a7a6", "e7e5", "Kd2"], chess.CHESS),
    Suite(
        "games",
        games.agent,
        games.make_tasks,
        games_oracle,
        ["50", "13", "99", "RGB", "OOO", "YBR", "A1", "B1", "C1"],
        games.GAMES,
    ),
)


def play(suite: Suite, tasks: Sequence[Task], policy: Callable[[Task], Sequence[Move]]) -> list[Mapping[str, Any]]:
    """Rewards and ends of a policy on tasks, by the agent loop itself, in this process."""
    played: list[Mapping[str, Any]] = []
    with closing(ToolEnv(suite.agent, tasks)) as env:
        for index, task in enumerate(tasks):
            env.reset(seed=index, options={"task": index})
            done, reward, info = False, 0.0, {}
            moves = iter(policy(task))
            while not done:
                move = next(moves, Move(None, answer="I give up."))
                _, reward, terminated, truncated, info = env.step(move.text)
                done = terminated or truncated
            played.append({"reward": reward, **info})
    return played
