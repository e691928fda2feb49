"""`judge`: a reward that asks a model."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from agentfly.envs.judge.rubric import BadVerdict, Criterion, check_rubric, instructions, read_verdict, total

from agentfly.agent import Reward, RewardResult, reward
from agentfly.context import Context, Task
from agentfly.errors import ConfigError, RewardError
from agentfly.models.engine import Message, Sampling
from agentfly.models.spec import ModelSpec

Show = Callable[[Task], str]


def judge(
    model: ModelSpec,
    rubric: Sequence[Criterion],
    *,
    show: str | Show = "prompt",
    name: str = "judge",
    best: int = 10,
    tries: int = 3,
    sampling: Sampling | None = None,
    cached: int = 10_000,
    timeout: float | None = 300.0,
) -> Reward:
    """A reward in [0, 1]: the weighted mean of a model's scores by a rubric, each a metric `<name>_<criterion>`.

    The same task and answer are asked about once in a process. An answer of another form is sent back with what is
    wrong; after `tries` of them the reward fails, and the rollout isn't trained on.

    Args:
        model: a pool of its own, of an engine that speaks messages (`openai`), with that engine's limits.
        rubric: what is judged.
        show: what the judge sees of the task: a field, or a function of the task.
        best: the highest score.
        tries: answers asked for at most.
        sampling: how the judge answers; greedy with 1,024 tokens otherwise.
        cached: verdicts kept.
        timeout: seconds of work.

    Raises:
        ConfigError: the rubric can't be scored, or the model speaks no messages.
    """
    check_rubric(rubric)
    if model.speaks != "messages":
        raise ConfigError(
            f"judge {name!r}: engine {model.engine!r} speaks no messages: serve it, and judge by `openai`"
        )
    if min(best, tries, cached) < 1:
        raise ConfigError(f"judge {name!r}: best, tries and cached must be at least 1")
    judging = _Judge(model, tuple(rubric), best, tries, sampling or Sampling(max_tokens=1024, temperature=0.0), cached)

    async def score(final_response: str, task: Task, ctx: Context) -> RewardResult:
        shown = str(task[show]) if isinstance(show, str) else show(task)
        scores = await judging.verdict(shown, final_response, ctx)
        return RewardResult(total(scores, rubric), {f"{name}_{each}": value for each, value in scores.items()})

    return reward(name=name, timeout=timeout)(score)


class _Judge:
    """Asks, understands, remembers."""

    def __init__(
        self, model: ModelSpec, rubric: Sequence[Criterion], best: int, tries: int, sampling: Sampling, cached: int
    ) -> None:
        self._model = model
        self._rubric = rubric
        self._best = best
        self._tries = tries
        self._sampling = sampling
        self._cached = cached
        self._known: OrderedDict[str, dict[str, float]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": OrderedDict()}

    async def verdict(self, task: str, answer: str, ctx: Context) -> dict[str, float]:
        """The scores of an answer.

        Raises:
            RewardError: the judge gives no verdict.
            ResourceError, ModelError: it can't be reached.
        """
        key = hashlib.sha256(json.dumps([task, answer]).encode()).hexdigest()
        if key not in self._known:
            self._known[key] = await self._ask(task, answer, ctx)
            while len(self._known) > self._cached:
                self._known.popitem(last=False)
        return self._known[key]

    async def _ask(self, task: str, answer: str, ctx: Context) -> dict[str, float]:
        # A lease of the process: a judge is nobody's in particular, and holds up no rollout's own claims.
        engine = await ctx.acquire(self._model, scope="global")
        mark = uuid4().hex[:12]  # so that an answer can't close its own frame
        material = f"<task {mark}>\n{task}\n</task {mark}>\n\n<answer {mark}>\n{answer}\n</answer {mark}>"
        messages: list[Message] = [
            {"role": "system", "content": instructions(self._rubric, self._best)},
            {"role": "user", "content": material},
        ]
        problem = BadVerdict("")
        for _ in range(self._tries):
            said = (await engine.chat(messages, [], self._sampling, session=ctx.rollout_id)).message
            try:
                return read_verdict(said["content"], self._rubric, self._best)
            except BadVerdict as error:
                problem = error
                again: Message = {"role": "user", "content": f"{error}. Answer with the JSON object alone."}
                messages = [*messages[:2], {"role": "assistant", "content": said["content"]}, again]
        raise RewardError(f"the judge gave no verdict in {self._tries} answers; the last: {problem}")
