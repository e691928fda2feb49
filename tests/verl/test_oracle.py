"""What a job asks for is what verl computes: its advantages, losses and gradients equal the native backend's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agentfly.backends.native.advantages import group_advantages
from agentfly.backends.native.aggregation import token_weights
from agentfly.backends.native.backend import learner_options
from agentfly.backends.native.losses import kl_k3, token_losses
from agentfly.backends.verl.backend import compose
from agentfly.backends.verl.translation import Files, overrides
from test_job import CPU
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
from verl.utils.config import omega_conf_to_dataclass

from agentfly.errors import ConfigError
from agentfly.training.job import TrainingJob

GROUPS, SIZE, LENGTH = 3, 4, 12


def job(model: Path, verl: dict[str, Any] | None = None, **algorithm: Any) -> TrainingJob:
    return TrainingJob.model_validate(
        {
            "agent": "agents:agent",
            "tasks": "tasks.jsonl",
            "model": {"path": str(model)},
            "rollout": {"group_size": SIZE, "tasks_per_step": GROUPS},
            "algorithm": algorithm,
            "verl": {**CPU, **(verl or {})},
        }
    )


def translate(one: TrainingJob) -> Any:
    files = Files(Path("loops.yaml"), Path("train.parquet"), Path("train.parquet"), Path("checkpoints"))
    return compose(overrides(one, files, tasks=8, resume=False))


class Batch:
    """Random rollouts: rewards, masks with holes where tools answered, log-probabilities old and new."""

    def __init__(self, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        rows = GROUPS * SIZE
        lengths = torch.randint(4, LENGTH + 1, (rows, 1), generator=rng)
        self.mask = (torch.arange(LENGTH)[None] < lengths).float()
        self.mask[:, 2] = 0
        self.rewards = torch.randn(rows, generator=rng)
        self.groups = np.repeat(np.arange(GROUPS).astype(str).astype(object), SIZE)
        self.old = -torch.rand(rows, LENGTH, generator=rng) * 3
        self.new = (self.old + 0.4 * torch.randn(rows, LENGTH, generator=rng)).requires_grad_(True)

    def scores(self) -> torch.Tensor:
        last = (self.mask * torch.arange(LENGTH)).argmax(1)
        scores = torch.zeros_like(self.mask)
        scores[torch.arange(len(scores)), last] = self.rewards
        return scores


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant"])
@pytest.mark.parametrize(("ratio", "dual_clip"), [("token", None), ("token", 1.5), ("sequence", None)])
def test_losses_and_gradients_are_the_native_ones(
    model: Path, aggregation: str, ratio: str, dual_clip: float | None
) -> None:
    asked = job(
        model,
        ratio=ratio,
        aggregation=aggregation,
        dual_clip=dual_clip,
        constant_length=20,
        clip_low=0.1,
        clip_high=0.3,
    )
    batch, options = Batch(1), learner_options(asked)
    advantages = ours_advantages(batch, "grpo")
    config = translate(asked).actor_rollout_ref.actor
    actor = omega_conf_to_dataclass(config)
    actor.global_batch_info["loss_scale_factor"] = actor.loss_scale_factor  # as verl's worker does
    theirs, _ = get_policy_loss_fn(config.policy_loss.loss_mode)(
        old_log_prob=batch.old,
        log_prob=batch.new,
        advantages=advantages,
        response_mask=batch.mask,
        loss_agg_mode=config.loss_agg_mode,
        config=actor,
    )
    (their_gradient,) = torch.autograd.grad(theirs, batch.new)
    where = batch.mask.bool()
    rows = torch.arange(len(where))[:, None].expand_as(where)[where]
    tokens = token_losses(options.loss, batch.new[where], batch.old[where], advantages[where], rows)
    weights = token_weights(batch.mask.sum(1).int().tolist(), options.aggregation, options.constant_length)
    ours = (tokens.losses * torch.tensor(weights)[rows]).sum()
    (our_gradient,) = torch.autograd.grad(ours, batch.new)
    torch.testing.assert_close(theirs, ours)
    torch.testing.assert_close(their_gradient, our_gradient)


def ours_advantages(batch: Batch, name: Any) -> torch.Tensor:
    groups = batch.rewards.view(GROUPS, SIZE).tolist()
    values = torch.tensor(np.concatenate([group_advantages(group, name) for group in groups]), dtype=torch.float32)
    return values[:, None] * batch.mask


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_advantages_are_the_native_ones(model: Path, name: str) -> None:
    batch = Batch(2)
    algorithm = translate(job(model, advantage=name)).algorithm
    options = {"norm_adv_by_std_in_grpo": algorithm.norm_adv_by_std_in_grpo} if "grpo" in name else {}
    theirs, _ = get_adv_estimator_fn(algorithm.adv_estimator)(batch.scores(), batch.mask, index=batch.groups, **options)
    torch.testing.assert_close(theirs, ours_advantages(batch, name))


def test_the_divergence_is_the_native_one(model: Path) -> None:
    actor = translate(job(model, kl_coefficient=0.1)).actor_rollout_ref.actor
    assert (actor.use_kl_loss, actor.kl_loss_coef) == (True, 0.1)
    batch = Batch(3)
    theirs = core_algos.kl_penalty(batch.new, batch.old, actor.kl_loss_type)
    torch.testing.assert_close(theirs, kl_k3(batch.new, batch.old))


def test_the_users_own_settings_win(model: Path) -> None:
    config = translate(job(model, {"data": {"max_prompt_length": 33}, "trainer.nnodes": 3, "made_up.thing": "x"}))
    assert (config.data.max_prompt_length, config.trainer.nnodes, config.made_up.thing) == (33, 3, "x")
    assert config.data.train_batch_size == GROUPS


def test_what_verl_refuses_is_told_in_a_line(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"^verl refuses its configuration: .*[^\n]$"):
        translate(job(model, {"actor_rollout_ref.rollout.temperature": 0}))
    with pytest.raises(ConfigError, match=r"^verl\.trainer\.use_v1: "):
        translate(job(model, {"trainer": {"use_v1": False}}))
