"""Runs the unmodified verl, as its users do, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# What a machine without an accelerator needs; nothing of it has to do with AgentFly.
CPU = [
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.fsdp_config.strategy=fsdp2",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype: fp32, reduce_dtype: fp32, buffer_dtype: fp32}",
    "actor_rollout_ref.rollout.name=hf_cpu",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "trainer.device=cpu",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "ray_kwargs.ray_init.num_cpus=16",
    "+ray_kwargs.ray_init.num_gpus=1",
    "+ray_kwargs.ray_init.address=local",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "+ray_kwargs.ray_init.object_store_memory=400000000",
]


def cpu_environment(**more: str) -> dict[str, str]:
    """Environment variables for a process that runs verl on the CPU."""
    return {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "cpu_platform",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_raylet_start_wait_time_s": "120",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "HYDRA_FULL_ERROR": "1",
        "WANDB_MODE": "disabled",
        **more,
    }


def pipeline(model: Path, train: Path, *more: str) -> list[str]:
    """The settings of a small GRPO pipeline: 4 prompts, 4 rollouts each, 2 steps."""
    return [
        *CPU,
        "algorithm.adv_estimator=grpo",
        f"data.train_files={train}",
        f"data.val_files={train}",
        "data.train_batch_size=4",
        "data.max_prompt_length=256",
        "data.max_response_length=128",
        "data.dataloader_num_workers=0",
        f"actor_rollout_ref.model.path={model}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "reward.num_workers=1",
        "trainer.logger=[console,file]",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "trainer.total_training_steps=2",
        "trainer.val_before_train=False",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        *more,
    ]


def main_ppo(settings: Sequence[str], folder: Path, environment: Mapping[str, str], *, timeout: float = 400) -> str:
    """Run `verl.trainer.main_ppo`; returns all that it printed."""
    log = folder / "verl.log"
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "verl.trainer.main_ppo", *settings],
            cwd=folder,
            env=dict(environment),
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    text = log.read_text()
    assert done.returncode == 0, text[-6000:]
    return text


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
