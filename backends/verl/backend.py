"""`VerlBackend`: verl's own trainer, with AgentFly's rollouts, behind a training job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from agentfly.backends.verl.progress import last_checkpoint
from agentfly.backends.verl.recorder import start_recorder
from agentfly.backends.verl.translation import overrides, refuse
from agentfly.backends.verl.versions import check_versions

from agentfly.errors import ConfigError, first_line
from agentfly.rollout.chat_format import ChatFormat
from agentfly.training.backend import PreparedJob, TrainingResult
from agentfly.training.job import TrainingJob

# verl takes seconds to be imported: that is done when it is needed, after all that can be told without it.


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
        from agentfly.backends.verl.watch import Watch

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
            watch = Watch(prepared, recorder, told, done if resume else 0)
            try:
                await watch.follow(run.start())
            finally:
                await run.stop()
        return watch.result()


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
    if not config.trainer.use_v1:
        raise ConfigError("verl.trainer.use_v1: a job runs with verl's V1 trainer only: leave it out")
    return config
