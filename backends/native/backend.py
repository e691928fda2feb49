"""`NativeBackend`: trains with torch in this process, on rollouts of the same rollout layer as everything else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentfly.backends.native import checkpoint
from agentfly.backends.native.checkpoint import Progress
from agentfly.backends.native.learner import Learner, LearnerOptions
from agentfly.backends.native.losses import PolicyLoss
from agentfly.backends.native.optimizer import Optimizer, OptimizerOptions
from agentfly.backends.native.policy import Policy
from agentfly.backends.native.threads import compute
from agentfly.backends.native.trainer import Trainer, TrainerOptions

from agentfly.errors import ConfigError
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.runner import RolloutRunner
from agentfly.rollout.session import resource_session
from agentfly.training.backend import PreparedJob, TrainingResult
from agentfly.training.job import TrainingJob


@dataclass(frozen=True)
class Start:
    """Where a run begins.

    Attributes:
        learner: with its weights and the state of its optimiser.
        progress: of the job so far.
    """

    learner: Learner
    progress: Progress


class NativeBackend:
    """Policy gradients with torch on one process: laptops, CI, one GPU."""

    def validate(self, job: TrainingJob) -> None:
        """Refuse what can't be trained on exactly.

        Raises:
            ConfigError: naming the setting.
        """
        rollout = job.rollout
        if rollout.temperature == 0:
            raise ConfigError("rollout.temperature: at 0 all rollouts of a task are the same, and nothing is learned")
        for name, off in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
            if getattr(rollout, name) != off:
                raise ConfigError(
                    f"rollout.{name}: it must be {off} in training: tokens drawn from a truncated distribution have "
                    "other probabilities than the policy's"
                )
        if not Path(job.model.path).is_dir():
            raise ConfigError(f"model.path: no folder {job.model.path!r}: give a local one in Hugging Face format")
        learner_options(job)

    async def train(self, prepared: PreparedJob, *, resume: bool = False) -> TrainingResult:
        """Train to the end. Cancelled, it leaves a checkpoint of the last whole step and nothing running.

        Raises:
            ConfigError: there is nothing to resume, or earlier checkpoints that a new run would mix with.
            AgentFlyError: too many rollouts failed, or gradients are not finite again and again.
        """
        job = prepared.job
        start = await compute(lambda _: _start(job, resume))
        async with (
            resource_session("train", event_log=(job.output / "events.jsonl").absolute()) as manager,
            RolloutRunner(prepared.agent, job.model.spec(), job.rollout.options(), manager=manager) as runner,
        ):
            trainer = Trainer(
                start.learner,
                runner,
                prepared.tasks,
                prepared.eval_tasks,
                trainer_options(job),
                checkpoints=_checkpoints(job),
                trajectories=job.output / "trajectories.jsonl",
                tokenizer=Path(job.model.path),
                log=prepared.logger.log,
                progress=start.progress,
            )
            last = await trainer.run()
        return TrainingResult(last, trainer.progress.step, trainer.metrics)


def learner_options(job: TrainingJob) -> LearnerOptions:
    """The job's algorithm, as the learner takes it."""
    algorithm = job.algorithm
    return LearnerOptions(
        estimator=algorithm.advantage,
        loss=PolicyLoss(
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            dual_clip=algorithm.dual_clip,
            ratio=algorithm.ratio,
            kl_coefficient=algorithm.kl_coefficient,
        ),
        aggregation=algorithm.aggregation,
        constant_length=algorithm.constant_length,
        epochs=algorithm.epochs,
        minibatches=algorithm.minibatches,
        max_batch_tokens=algorithm.max_tokens_per_batch,
    )


def trainer_options(job: TrainingJob) -> TrainerOptions:
    """The job's shape, as the trainer takes it."""
    return TrainerOptions(
        steps=job.steps,
        tasks_per_step=job.rollout.tasks_per_step,
        group_size=job.rollout.group_size,
        eval_every=job.eval_every,
        checkpoint_every=job.checkpoint.every,
        keep=job.checkpoint.keep,
        max_failed_fraction=job.rollout.max_failed_fraction,
        seed=job.seed,
    )


def _checkpoints(job: TrainingJob) -> Path:
    return job.output / "checkpoints"


def _start(job: TrainingJob, resume: bool) -> Start:
    """Load weights and the optimiser's state: the model's, or those of the newest checkpoint."""
    place = None
    if resume:
        place = checkpoint.newest(_checkpoints(job))
    elif any(checkpoint.load_progress(earlier).step for earlier in checkpoint.list_checkpoints(_checkpoints(job))):
        raise ConfigError(
            f"output: {job.output} has checkpoints of an earlier run: resume it, or choose another folder"
        )
    ChatFormat.load(job.model.path, family=job.model.family, options=job.model.chat_options).check()
    temperature = job.rollout.temperature
    policy = Policy.load(place or job.model.path, temperature=temperature)
    updates = job.steps * job.algorithm.epochs * job.algorithm.minibatches
    optimizer = Optimizer(policy.model.parameters(), OptimizerOptions(**dict(job.optimizer)), updates)
    reference = Policy.load(job.model.path, temperature=temperature) if job.algorithm.kl_coefficient > 0 else None
    progress = Progress()
    if place is not None:
        progress = checkpoint.load_progress(place)
        optimizer.load_state(checkpoint.load_optimizer(place))
    return Start(Learner(policy, optimizer, learner_options(job), reference), progress)
