"""The training loop: roll out, learn, push the weights, evaluate, keep checkpoints."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from agentfly.backends.native import checkpoint
from agentfly.backends.native.checkpoint import Progress
from agentfly.backends.native.learner import Learner
from agentfly.backends.native.order import TaskOrder
from agentfly.backends.native.statistics import rollout_metrics
from agentfly.backends.native.threads import compute

from agentfly.context.task import Task
from agentfly.errors import AgentFlyError
from agentfly.rollout.request import GroupRequest
from agentfly.rollout.seeds import derive_seed
from agentfly.rollout.storage import TrajectoryWriter
from agentfly.rollout.trajectory import Group

Log = Callable[[int, Mapping[str, float]], None]

_log = logging.getLogger(__name__)
# Ten times what bfloat16 explains; weights that did not arrive show as differences of about 1.
_SUSPICIOUS_GAP = 0.5


class RolloutSource(Protocol):
    """Where rollouts come from; `RolloutRunner` is one."""

    def run(self, requests: Iterable[GroupRequest]) -> AsyncIterator[Group]:
        """Groups as they complete."""
        ...

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Sample from these weights from now on."""
        ...


@dataclass(frozen=True)
class TrainerOptions:
    """The shape of a run.

    Attributes:
        steps: updates in all.
        tasks_per_step: groups that each learns from.
        group_size: rollouts of one task.
        eval_every: steps between evaluations; 0 evaluates only before the first and after the last.
        checkpoint_every: steps between checkpoints; 0 keeps only the last.
        keep: newest checkpoints to keep; None keeps all.
        max_failed_fraction: of a step's rollouts may be untrainable; more is an error.
        seed: of the tasks' order and the rollouts' sampling.
    """

    steps: int
    tasks_per_step: int
    group_size: int
    eval_every: int = 0
    checkpoint_every: int = 0
    keep: int | None = 2
    max_failed_fraction: float = 0.1
    seed: int = 0


class Trainer:
    """Runs a learner on rollouts of its own policy, one step after the other.

    Args:
        learner: changes the policy.
        source: samples from it.
        tasks: to train on.
        eval_tasks: to evaluate on; may be empty.
        options: the shape of the run.
        checkpoints: folder for checkpoints.
        trajectories: file that training rollouts are appended to, one JSON line each.
        tokenizer: model folder whose tokenizer goes into the checkpoints.
        log: is told the metrics of each step and evaluation.
        progress: where an earlier run stopped; the learner must be in that state.
    """

    def __init__(
        self,
        learner: Learner,
        source: RolloutSource,
        tasks: Sequence[Task],
        eval_tasks: Sequence[Task],
        options: TrainerOptions,
        *,
        checkpoints: Path,
        trajectories: Path,
        tokenizer: Path | None = None,
        log: Log = lambda step, metrics: None,
        progress: Progress | None = None,
    ) -> None:
        self._learner = learner
        self._source = source
        self._order = TaskOrder(tasks, options.seed)
        self._eval_tasks = eval_tasks
        self._options = options
        self._checkpoints = checkpoints
        self._trajectories = trajectories
        self._tokenizer = tokenizer
        self._log = log
        self._saved: Path | None = None
        self._between_steps = True
        self.progress = progress or Progress()
        self.metrics: dict[str, float] = {}

    async def run(self) -> Path | None:
        """Train to the end; returns the last checkpoint.

        Cancelled or failing, it still leaves a checkpoint of the last step that was completed.

        Raises:
            AgentFlyError: too many rollouts failed, or the gradients are not finite again and again.
        """
        position = self.progress.trajectory_bytes
        with TrajectoryWriter(self._trajectories, position=position) as writer:
            try:
                await self._push_weights()
                if self.progress.step == 0:
                    await self._evaluate()
                while self.progress.step < self._options.steps:
                    await self._step(writer)
                    await self._after_step()
            finally:
                await self._save()
        return self._saved

    async def _step(self, writer: TrajectoryWriter) -> None:
        started = time.monotonic()
        before = self.progress
        groups = await self._roll_out(self._requests(before))
        rolled_out = time.monotonic()
        await compute(lambda _: _write(writer, groups))
        self._check_failures(groups)
        metrics = rollout_metrics(groups, before.version)

        def learn(stopped: Callable[[], bool]) -> None:
            seed = derive_seed(self._options.seed, "minibatches", before.step)
            self._between_steps = False
            learned = self._learner.update(groups, seed=seed, stopped=stopped)
            self._between_steps = True
            if learned is not None:
                metrics.update(learned)
                self.progress = replace(
                    before,
                    step=before.step + 1,
                    version=before.version + 1,
                    tasks_drawn=before.tasks_drawn + self._options.tasks_per_step,
                    trajectory_bytes=writer.position,
                )

        await compute(learn)
        learned = time.monotonic()
        await self._push_weights()
        metrics["seconds/rollouts"] = rolled_out - started
        metrics["seconds/update"] = learned - rolled_out
        metrics["seconds/weights"] = time.monotonic() - learned
        self._report(metrics)

    async def _after_step(self) -> None:
        step, options = self.progress.step, self._options
        last = step == options.steps
        if last or (options.eval_every and step % options.eval_every == 0):
            await self._evaluate()
        if options.checkpoint_every and step % options.checkpoint_every == 0 and not last:
            await self._save()

    def _requests(self, progress: Progress) -> list[GroupRequest]:
        tasks = self._order.take(progress.tasks_drawn, self._options.tasks_per_step)
        return [
            GroupRequest(f"{progress.step}-{index}-{task.id}", task, self._options.group_size, self._options.seed)
            for index, task in enumerate(tasks)
        ]

    async def _roll_out(self, requests: Sequence[GroupRequest]) -> list[Group]:
        """All groups, in the order of the requests, so that a run doesn't depend on who finished first."""
        order = {request.id: index for index, request in enumerate(requests)}
        groups = [group async for group in self._source.run(requests)]
        groups.sort(key=lambda group: order[group.id])
        return groups

    async def _evaluate(self) -> None:
        if not self._eval_tasks:
            return
        requests = [
            # The same seeds each time: evaluations differ by the policy alone.
            GroupRequest(
                f"eval-{self.progress.step}-{index}-{task.id}", task, 1, derive_seed(self._options.seed, index)
            )
            for index, task in enumerate(self._eval_tasks)
        ]
        groups = await self._roll_out(requests)
        self._check_failures(groups)
        metrics = rollout_metrics(groups, self.progress.version)
        self._report({f"eval/{name}": value for name, value in metrics.items()})

    def _check_failures(self, groups: Sequence[Group]) -> None:
        members = [member for group in groups for member in group]
        failed = [member for member in members if not member.trainable]
        if len(failed) <= self._options.max_failed_fraction * len(members) and len(failed) < len(members):
            return
        reasons = Counter(member.error or f"it ended by {member.finish_reason}" for member in failed)
        reason, count = reasons.most_common(1)[0]
        raise AgentFlyError(
            f"{len(failed)} of {len(members)} rollouts after step {self.progress.step} can't be learned from "
            f"(allowed: {self._options.max_failed_fraction:.0%}); {count} of them because: {reason}"
        )

    def _report(self, metrics: Mapping[str, float]) -> None:
        if metrics.get("logprob_gap", 0.0) > _SUSPICIOUS_GAP:
            _log.warning(
                "step %d: log-probabilities of the engine differ from the trainer's by up to %.2f: it may sample from "
                "other weights, or in a coarser number format",
                self.progress.step,
                metrics["logprob_gap"],
            )
        self.metrics.update(metrics)
        self._log(self.progress.step, metrics)

    async def _push_weights(self) -> None:
        weights = await asyncio.to_thread(self._learner.policy.weights)
        await self._source.update_weights(weights, self.progress.version)

    async def _save(self) -> None:
        """Write a checkpoint, unless an error left the weights in the middle of a step."""
        if not self._between_steps:
            return
        progress = self.progress
        self._saved = await compute(
            lambda _: checkpoint.save(
                self._checkpoints,
                self._learner.policy.model,
                progress,
                self._learner.optimizer.state(),
                tokenizer=self._tokenizer,
                keep=self._options.keep,
            )
        )


def _write(writer: TrajectoryWriter, groups: Sequence[Group]) -> None:
    for group in groups:
        for trajectory in group:
            writer.write(trajectory)
