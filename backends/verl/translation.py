"""A training job in verl's words, as Hydra overrides; what verl has no words for is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfly.errors import ConfigError
from agentfly.training.job import TrainingJob

LOOP_NAME = "agentfly_job"
_ADVANTAGES = {"grpo": ("grpo", True), "dr_grpo": ("grpo", False), "rloo": ("rloo", True)}
_AGGREGATIONS = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}
# Bounds that verl can't switch off, set where they never bind.
_NO_DUAL_CLIP = 1e9
_NO_GRADIENT_LIMIT = 1e9


@dataclass(frozen=True)
class Files:
    """What the job has written for verl.

    Attributes:
        loop: the agent loop file.
        train, evaluation: datasets; the latter is the former where there is nothing to evaluate on.
        checkpoints: where verl is to put its own.
    """

    loop: Path
    train: Path
    evaluation: Path
    checkpoints: Path


def refuse(job: TrainingJob) -> None:
    """Refuse what verl can't do, before anything starts.

    Raises:
        ConfigError: with a line for each setting.
    """
    model, rollout, algorithm = job.model, job.rollout, job.algorithm
    problems = [
        (
            model.engine != "transformers",
            f"model.engine: verl serves the model itself, {model.engine!r} has no place in it: leave it out, and "
            "choose verl's server by verl.actor_rollout_ref.rollout.name",
        ),
        (
            bool(set(model.options) - {"device"}),
            "model.options: they are the embedded engine's; those of verl's servers stand under "
            "verl.actor_rollout_ref.rollout",
        ),
        (model.num_cpus != 0, "model.num_cpus: verl places its own workers"),
        (model.num_gpus != int(model.num_gpus), "model.num_gpus: verl shares no GPU between engines: a whole number"),
        (rollout.num_cpus != 0, "rollout.num_cpus: verl starts the agent loop workers itself"),
        (rollout.min_p != 0, "rollout.min_p: verl doesn't sample so"),
        (bool(rollout.stop), "rollout.stop: verl's servers stop at tokens, not at texts"),
        (
            rollout.temperature == 0,
            "rollout.temperature: at 0 all rollouts of a task are the same, and nothing is learned",
        ),
        (
            rollout.tasks_per_step % algorithm.minibatches != 0,
            f"algorithm.minibatches: verl cuts a step's {rollout.tasks_per_step} tasks into equal parts, "
            f"{algorithm.minibatches} is no divisor",
        ),
        (
            algorithm.advantage not in _ADVANTAGES,
            f"algorithm.advantage: verl has no {algorithm.advantage!r} without a baseline: {', '.join(_ADVANTAGES)}",
        ),
        (
            algorithm.ratio == "sequence" and algorithm.dual_clip is not None,
            "algorithm.dual_clip: verl has none for ratios of sequences",
        ),
        (
            job.optimizer.schedule == "linear",
            "optimizer.schedule: verl has no linear one: constant or cosine",
        ),
        (
            not (Path(model.path) / "config.json").is_file(),
            f"model.path: no config.json in {model.path!r}: give a local folder in Hugging Face format",
        ),
    ]
    lines = [line for wrong, line in problems if wrong]
    if lines:
        raise ConfigError("\n".join(lines))


def overrides(job: TrainingJob, files: Files, *, tasks: int, resume: bool) -> list[str]:
    """The job as Hydra overrides of verl's `ppo_trainer`, the user's own last.

    Args:
        job: one that `refuse` lets pass.
        files: written for it.
        tasks: rows of the training dataset.
        resume: go on from the newest checkpoint.
    """
    settings: dict[str, Any] = {
        **_data(job, files),
        **_model(job),
        **_algorithm(job),
        **_optimizer(job),
        **_rollout(job, files),
        **_trainer(job, files, tasks, resume),
    }
    return [f"{name}={_hydra(value)}" for name, value in settings.items()] + passed_through(job.verl)


def passed_through(given: Mapping[str, Any]) -> list[str]:
    """The job's `verl:` section as overrides: nested mappings, or names with dots; unknown names are added.

    An empty mapping is a value.
    """
    return [f"++{name}={_hydra(value)}" for name, value in _leaves(given)]


def _data(job: TrainingJob, files: Files) -> dict[str, Any]:
    rollout = job.rollout
    context = _context(job)
    return {
        "data.train_files": str(files.train),
        "data.val_files": str(files.evaluation),
        "data.train_batch_size": rollout.tasks_per_step,
        "data.max_prompt_length": context // 2,
        "data.max_response_length": context - context // 2,
        "data.filter_overlong_prompts": False,
        "data.dataloader_num_workers": 0,
        "data.seed": job.seed,
        "data.shuffle": True,
    }


def _context(job: TrainingJob) -> int:
    """Tokens of the longest row: what the model can take, and what fits into one pass through it."""
    config = json.loads((Path(job.model.path) / "config.json").read_text())
    known = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    return min(int(known or job.algorithm.max_tokens_per_batch), job.algorithm.max_tokens_per_batch)


def _model(job: TrainingJob) -> dict[str, Any]:
    return {
        "actor_rollout_ref.model.path": str(Path(job.model.path).resolve()),
        "actor_rollout_ref.rollout.tensor_model_parallel_size": max(1, int(job.model.num_gpus)),
        "trainer.n_gpus_per_node": job.model.replicas * max(1, int(job.model.num_gpus)),
        "trainer.nnodes": 1,
    }


def _algorithm(job: TrainingJob) -> dict[str, Any]:
    algorithm, rollout = job.algorithm, job.rollout
    estimator, by_deviation = _ADVANTAGES[algorithm.advantage]
    actor = "actor_rollout_ref.actor"
    settings: dict[str, Any] = {
        "algorithm.adv_estimator": estimator,
        "algorithm.norm_adv_by_std_in_grpo": by_deviation,
        "algorithm.use_kl_in_reward": False,
        f"{actor}.clip_ratio": algorithm.clip_low,
        f"{actor}.clip_ratio_low": algorithm.clip_low,
        f"{actor}.clip_ratio_high": algorithm.clip_high,
        f"{actor}.clip_ratio_c": algorithm.dual_clip or _NO_DUAL_CLIP,
        f"{actor}.policy_loss.loss_mode": "gspo" if algorithm.ratio == "sequence" else "vanilla",
        f"{actor}.loss_agg_mode": _AGGREGATIONS[algorithm.aggregation],
        f"{actor}.use_kl_loss": algorithm.kl_coefficient > 0,
        f"{actor}.kl_loss_coef": algorithm.kl_coefficient,
        f"{actor}.kl_loss_type": "low_var_kl",
        f"{actor}.entropy_coeff": 0,
        f"{actor}.ppo_epochs": algorithm.epochs,
        f"{actor}.ppo_mini_batch_size": rollout.tasks_per_step // algorithm.minibatches,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": algorithm.max_tokens_per_batch,
    }
    if algorithm.constant_length is not None:
        settings[f"{actor}.loss_scale_factor"] = algorithm.constant_length
    return settings


def _optimizer(job: TrainingJob) -> dict[str, Any]:
    optimizer = job.optimizer
    limit = optimizer.grad_clip or _NO_GRADIENT_LIMIT
    place = "actor_rollout_ref.actor.optim"
    return {
        f"{place}.lr": optimizer.lr,
        f"{place}.betas": list(optimizer.betas),
        f"{place}.weight_decay": optimizer.weight_decay,
        f"{place}.clip_grad": limit,
        "actor_rollout_ref.actor.grad_clip": limit,
        f"{place}.lr_scheduler_type": optimizer.schedule,
        f"{place}.lr_warmup_steps": optimizer.warmup_steps,
        f"{place}.min_lr_ratio": optimizer.final_fraction,
    }


def _rollout(job: TrainingJob, files: Files) -> dict[str, Any]:
    rollout, place = job.rollout, "actor_rollout_ref.rollout"
    sampling = {"temperature": rollout.temperature, "top_p": rollout.top_p, "top_k": rollout.top_k or -1}
    return {
        f"{place}.name": "vllm",
        f"{place}.n": rollout.group_size,
        **{f"{place}.{name}": value for name, value in sampling.items()},
        **{f"{place}.val_kwargs.{name}": value for name, value in sampling.items()},
        f"{place}.val_kwargs.do_sample": True,
        f"{place}.val_kwargs.n": 1,
        f"{place}.seed": job.seed,
        f"{place}.calculate_log_probs": True,
        f"{place}.agent.num_workers": rollout.workers,
        f"{place}.agent.agent_loop_config_path": str(files.loop),
        f"{place}.agent.default_agent_loop": LOOP_NAME,
    }


def _trainer(job: TrainingJob, files: Files, tasks: int, resume: bool) -> dict[str, Any]:
    evaluates = job.eval_tasks is not None
    steps_of_an_epoch = max(1, tasks // job.rollout.tasks_per_step)
    return {
        "trainer.total_training_steps": job.steps,
        "trainer.total_epochs": job.steps // steps_of_an_epoch + 1,
        "trainer.val_before_train": evaluates and not resume,
        "trainer.test_freq": (job.eval_every or job.steps) if evaluates else -1,
        "trainer.save_freq": job.checkpoint.every or job.steps,
        "trainer.max_actor_ckpt_to_keep": job.checkpoint.keep,
        "trainer.default_local_dir": str(files.checkpoints),
        "trainer.resume_mode": "auto" if resume else "disable",
        "trainer.logger": ["file"],
        "trainer.project_name": "agentfly",
        "trainer.experiment_name": job.output.name or "job",
        "actor_rollout_ref.actor.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        # Only what is saved for going on is loaded again.
        "actor_rollout_ref.actor.checkpoint.load_contents": ["model", "optimizer", "extra"],
        "reward.num_workers": 1,
    }


def _leaves(given: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in given.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            found.extend(_leaves(value, f"{path}."))
        else:
            found.append((path, value))
    return found


def _hydra(value: Any) -> str:
    """A value in Hydra's grammar for overrides; JSON's quoted strings are valid in it."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_hydra(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_hydra, value)) + "]"
    return json.dumps(value)
