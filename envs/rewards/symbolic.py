"""Answers that are formulas: equal by what they mean (`math-verify`)."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly.envs.rewards.answers import accepted_answers, find_answer
from agentfly.envs.rewards.numbers import near
from agentfly.envs.rewards.verifier import SymbolicVerifier
from agentfly.envs.sandbox_tools.needs import NeedsFields

from agentfly.agent import Reward, reward
from agentfly.context import Context, Task
from agentfly.resources import ResourceSpec

SYMBOLIC = ResourceSpec(SymbolicVerifier, name="symbolic", shared=True, slots=1024, max_size=1024)
_WITHIN = 1e-12


def symbolic(
    field: str = "answer", *, name: str = "symbolic", verifier: ResourceSpec[SymbolicVerifier] = SYMBOLIC
) -> Reward:
    """1 when the answer equals one of those in the task's field as mathematics: numbers, formulas, sets, matrices.

    The comparison runs in a process of its own, which is killed when a formula takes too long: then the answer is
    taken for wrong and the metric `symbolic_timeout` is 1. What is equal already as text or number needs no process.

    Args:
        field: one answer or a list of them, in LaTeX or plain.
        name: of the reward.
        verifier: the pool.
    """

    async def score(final_response: str, task: Task, ctx: Context) -> float:
        said = find_answer(final_response)
        answers = accepted_answers(task[field], field)
        if _plainly_equal(said, answers):
            return 1.0
        process = await ctx.acquire(verifier, scope="global")
        verdict = await process.equal(said, answers)
        ctx.log(symbolic_timeout=float(verdict is None))
        return float(verdict is True)

    return NeedsFields(reward(name=name)(score), (field,))


def _plainly_equal(said: str, answers: Sequence[str]) -> bool:
    return any(said == right.strip() or (_is_number(said) and _both_near(said, right)) for right in answers)


def _both_near(said: str, right: str) -> bool:
    return _is_number(right) and near(said, right, absolute=_WITHIN, relative=0.0)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).removeprefix("-").isascii() and text.replace(".", "", 1).removeprefix("-").isdigit()
