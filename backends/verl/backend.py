"""`VerlBackend`: verl's own trainer, with AgentFly's rollouts, behind a training job."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from agentfly.backends.verl.translation import overrides, refuse
from agentfly.backends.verl.versions import check_versions

from agentfly.errors import AgentFlyError, ConfigError, first_line
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.storage import TrajectoryWriter
from agentfly.rollout.trajectory import Group
from agentfly.training.backend import PreparedJob, TrainingResult
from agentfly.training.job import TrainingJob

# verl takes seconds to be imported: that is done when it is needed, after all that can be told without it.
_POLL = 0.5


class VerlBackend:
    """Training by verl: FSDP over many GPUs, vLLM or SGLang for the rollouts."""

    def validate(self, job: TrainingJob) -> None:
        """Refuse what verl can't honour.

        Raises:
            ConfigError: verl isn't there or of another version; or with a line for each setting.
        """
        refuse(job)
        check_versions()

    async def train(self, prepared: PreparedJob, *, resume: bool = False) -> TrainingResult:
        """Train to the end. Cancelled, it leaves verl's newest checkpoint and nothing running.

        Raises:
            ConfigError: verl refuses its configuration; there is nothing to resume; or earlier checkpoints that a
                new run would mix with.
            AgentFlyError: verl's trainer failed, or too many rollouts did.
        """
        from agentfly.backends.verl.cluster import TrainerRun, verl_cluster
        from agentfly.backends.verl.files import write_files
        from agentfly.backends.verl.progress import last_checkpoint
        from agentfly.backends.verl.recorder import start_recorder

        job = prepared.job
        done = last_checkpoint(job.output / "checkpoints")
        if resume and not done:
            raise ConfigError(f"output: there is no checkpoint of verl's in {job.output} to resume")
        if done and not resume:
            raise ConfigError(
                f"output: {job.output} has checkpoints of an earlier run: resume it, or choose another folder"
            )
        ChatFormat.load(job.model.path, family=job.model.family, options=job.model.chat_options).check()
        name = f"recorder-{uuid4().hex[:8]}"
        files = await asyncio.to_thread(write_files, prepared, name)
        config = compose(overrides(job, files, tasks=len(prepared.tasks), resume=resume))
        told = job.output.resolve() / "verl" / "metrics.jsonl"
        told.unlink(missing_ok=True)
        with verl_cluster(config):
            recorder = start_recorder(name)
            run = TrainerRun(config, {"VERL_FILE_LOGGER_PATH": str(told)})
            watch = _Watch(prepared, recorder, told, done if resume else 0)
            try:
                await watch.follow(run.start())
            finally:
                await run.stop()
        return watch.result()


class _Watch:
    """Follows a run: reports each step, keeps the trajectories, and ends the run when too many rollouts fail."""

    def __init__(self, prepared: PreparedJob, recorder: Any, told: Path, step: int) -> None:
        from agentfly.backends.verl.progress import MetricsFile, Positions
        from agentfly.backends.verl.recorder import Recorded

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
            await run

    def result(self) -> TrainingResult:
        """What the run has left."""
        from agentfly.backends.verl.progress import last_checkpoint, model_folder

        saved = last_checkpoint(self._checkpoints)
        folder = model_folder(self._checkpoints, saved) if saved else None
        return TrainingResult(folder, self._step, self._metrics)

    async def _report(self, writer: TrajectoryWriter) -> None:
        from agentfly.backends.verl.metrics import evaluation_metrics, step_metrics

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
        from agentfly.backends.verl.recorder import groups_of

        chosen, kept = [], []
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
        reasons = Counter(member.error or f"it ended by {member.finish_reason}" for member in failed)
        reason, count = reasons.most_common(1)[0]
        raise AgentFlyError(
            f"{len(failed)} of {len(members)} rollouts of step {self._step} can't be learned from "
            f"(allowed: {most:.0%}); {count} of them because: {reason}"
        )


def compose(settings: Sequence[str]) -> Any:
    """verl's whole configuration, checked by verl.

    Raises:
        ConfigError: one of the settings isn't verl's, or verl objects to their combination.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra_compose("ppo_trainer", overrides=list(settings))
        auto_set_device(config)
        validate_config(
            config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config)
        )
    except (HydraException, OmegaConfBaseException, ValueError, AssertionError, TypeError) as error:
        raise ConfigError(f"verl refuses its configuration: {first_line(error)}") from error
    return config
