"""Follows a run of verl's trainer: reports its steps, keeps its trajectories, ends it when too many rollouts fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentfly.backends.verl.metrics import evaluation_metrics, step_metrics
from agentfly.backends.verl.progress import MetricsFile, Positions, last_checkpoint, model_folder
from agentfly.backends.verl.recorder import Recorded, groups_of

from agentfly.errors import AgentFlyError
from agentfly.rollout.storage import TrajectoryWriter
from agentfly.rollout.trajectory import Group, Trajectory
from agentfly.training.backend import PreparedJob, TrainingResult

_POLL = 0.5


class Watch:
    """Of one run.

    Args:
        prepared: the job.
        recorder: the actor that gets its trajectories.
        told: file that verl writes its metrics to.
        step: that the run begins after.
    """

    def __init__(self, prepared: PreparedJob, recorder: Any, told: Path, step: int) -> None:
        output = prepared.job.output.resolve()
        self._job = prepared.job
        self._logger = prepared.logger
        self._recorder = recorder
        self._told = MetricsFile(told)
        self._positions = Positions(output / "verl" / "positions.json")
        self._trajectories = output / "trajectories.jsonl"
        self._checkpoints = output / "checkpoints"
        self._recorded: list[Recorded] = []
        self._step = step
        self._metrics: dict[str, float] = {}

    async def follow(self, run: asyncio.Task[None]) -> None:
        """Until the run ends, however it does."""
        with TrajectoryWriter(self._trajectories, position=self._positions.at(self._step)) as writer:
            while not run.done():
                await asyncio.wait({run}, timeout=_POLL)
                await self._report(writer)
            try:
                await run
            except AgentFlyError as error:
                raise AgentFlyError(f"{error}{await self._reason()}") from error

    def result(self) -> TrainingResult:
        """What the run has left."""
        saved = last_checkpoint(self._checkpoints)
        folder = model_folder(self._checkpoints, saved) if saved else None
        return TrainingResult(folder, self._step, self._metrics)

    async def _report(self, writer: TrajectoryWriter) -> None:
        for told in self._told.new():
            # Rollouts are recorded before verl may learn from them, so all of this step are there.
            self._recorded += await self._recorder.take.remote()
            version = max(0, told.step - 1)
            groups = self._pick(told.step, evaluation=False)
            if groups:
                self._step = told.step
                for member in (member for group in groups for member in group):
                    writer.write(member)
                self._positions.note(told.step, writer.position)
                self._log(told.step, step_metrics(groups, told.metrics, version))
                self._check_failures(groups)
            if evaluated := self._pick(told.step, evaluation=True):
                self._log(told.step, evaluation_metrics(evaluated, told.step))
                self._check_failures(evaluated)

    def _pick(self, step: int, *, evaluation: bool) -> list[Group]:
        chosen: list[Recorded] = []
        kept: list[Recorded] = []
        for entry in self._recorded:
            (chosen if entry.step <= step and entry.evaluation == evaluation else kept).append(entry)
        self._recorded = kept
        return groups_of(chosen)

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        self._metrics.update(metrics)
        self._logger.log(step, metrics)

    def _check_failures(self, groups: Sequence[Group]) -> None:
        members = [member for group in groups for member in group]
        failed = [member for member in members if not member.trainable]
        most = self._job.rollout.max_failed_fraction
        if len(failed) <= most * len(members):
            return
        raise AgentFlyError(
            f"{len(failed)} of {len(members)} rollouts of step {self._step} can't be learned from "
            f"(allowed: {most:.0%}); {_most_common(failed)}"
        )

    async def _reason(self) -> str:
        """What the rollouts that verl got last have to say about its end."""
        self._recorded += await self._recorder.take.remote()
        failed = [entry.trajectory for entry in self._recorded if not entry.trajectory.trainable]
        if not failed:
            return ""
        return f"; {len(failed)} of the last {len(self._recorded)} rollouts failed, {_most_common(failed)}"


def _most_common(failed: Sequence[Trajectory]) -> str:
    reasons = Counter(member.error or f"it ended by {member.finish_reason}" for member in failed)
    reason, count = reasons.most_common(1)[0]
    return f"{count} of them because: {reason}"
