from __future__ import annotations

import shutil

import pytest
from agentfly.envs.scienceworld import scienceworld_agent, scienceworld_resource, scienceworld_tasks

from agentfly.errors import ConfigError


class Simulator:
    """What is asked of a simulator, with a score that is told beforehand."""

    def __init__(self, scores: list[int]) -> None:
        self._scores = iter(scores)

    def load(self, task: str, variation: int, simplification: str, *, generateGoldPath: bool) -> None:
        assert (task, variation, simplification, generateGoldPath) == ("boil", 3, "easy", False)

    def reset(self) -> tuple[str, dict[str, str]]:
        return "A room.", {}

    def get_task_description(self) -> str:
        return "Boil water."

    def step(self, action: str) -> tuple[str, int, bool, dict[str, int]]:
        score = next(self._scores)
        return f"did {action}", 0, score in (100, -100), {"score": score}


@pytest.mark.parametrize(("scores", "rewards"), [([10, 10, 100], [0.1, 0.0, 0.9]), ([50, -100], [0.5, -0.5])])
def test_a_step_is_worth_what_the_score_rises_by(scores: list[int], rewards: list[float]) -> None:
    from agentfly.envs.scienceworld.resource import ScienceWorldGame

    game = ScienceWorldGame(Simulator(scores), "boil", 3, "easy")
    assert game.observe() == "Boil water.\n\nA room."
    steps = [game.step("  look   around ") for _ in scores]
    assert [step.reward for step in steps] == pytest.approx(rewards)
    assert [step.over for step in steps] == [False] * (len(scores) - 1) + [True]
    assert steps[0].observation == "did look around"


def test_without_java_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    scienceworld_agent(scienceworld_resource()).check(("prompt", "task", "variation"))
    with pytest.raises(ConfigError, match="needs Java"):
        scienceworld_tasks(["boil"], [0])
