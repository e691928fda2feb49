"""How the rewards here are made: a comparison of the answer with a field of the task."""

from __future__ import annotations

from collections.abc import Callable

from agentfly.envs.rewards.answers import accepted_answers, find_answer
from agentfly.envs.sandbox_tools.needs import NeedsFields

from agentfly.agent import Reward, reward
from agentfly.context import Task

# What was said and what is right -> from 0 to 1.
Compare = Callable[[str, str], float]


def compared(name: str, field: str, compare: Compare, *, extract: bool) -> Reward:
    """The best comparison with any of the answers that the task's field allows.

    Args:
        name: of the reward.
        field: the task's field with one answer or a list.
        compare: may raise nothing, whatever the texts are.
        extract: look for the answer as `find_answer` does; else the whole response counts.
    """

    def score(final_response: str, task: Task) -> float:
        said = find_answer(final_response) if extract else final_response
        return max(compare(said, right) for right in accepted_answers(task[field], field))

    return NeedsFields(reward(name=name)(score), (field,))
