"""`TrainingJob`: everything about a run, as one document that is checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, model_validator

from agentfly.agent import Agent
from agentfly.context import Task
from agentfly.models.engine import Sampling
from agentfly.models.spec import ModelSpec
from agentfly.rollout.request import RolloutOptions

Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
# A number beyond these is a slip of the hand, and would fill the memory before anything is told.
Workers = Annotated[int, Field(ge=1, le=10_000)]
Rollouts = Annotated[int, Field(ge=1, le=1_000_000)]


def _agent_or_place(value: object) -> object:
    if isinstance(value, (str, Agent)):
        return value
    raise ValueError("must be 'module:attribute' or 'file.py:attribute'")


def _tasks_or_place(value: object) -> object:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(task, Task) for task in value)):
        return value
    raise ValueError("must be the name of a JSON, JSONL or Parquet file, or module:function")


# Checked here, since pydantic would tell of a union once for each member.
AgentSource = Annotated[str | InstanceOf[Agent], BeforeValidator(_agent_or_place)]
TaskSource = Annotated[str | list[InstanceOf[Task]], BeforeValidator(_tasks_or_place)]


class _Part(BaseModel):
    """A part of a job: unknown keys are errors, values don't change."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)


class ModelConfig(_Part):
    """The model. See `ModelSpec`.

    Attributes:
        engine: `transformers`, `openai`, `scripted`, an installed engine's name, or `module:Class`.
        path: model folder in Hugging Face form; also where the tokenizer is.
        family: the chat format's name, as the renderers library knows it; null finds out.
        chat_options: of that format or of the chat template, such as `{enable_thinking: false}`.
        options: of the engine.
        max_concurrency: calls in progress on one engine.
        replicas: engines.
        num_cpus, num_gpus: what Ray reserves for each.
    """

    engine: str = "transformers"
    path: str = ""
    family: str | None = None
    chat_options: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    max_concurrency: Positive = 256
    replicas: Positive = 1
    num_cpus: Annotated[float, Field(ge=0)] = 0.0
    num_gpus: Annotated[float, Field(ge=0)] = 0.0

    def spec(self) -> ModelSpec:
        """The pool of engines.

        Raises:
            ConfigError: no such engine, or not its options.
        """
        return ModelSpec(**dict(self))


class RolloutConfig(_Part):
    """How rollouts are run.

    Attributes:
        group_size: rollouts of each task.
        tasks_per_step: groups that one update learns from.
        workers: rollout processes; concurrency: rollouts at once in each.
        max_tokens, temperature, top_p, top_k, min_p, stop: of sampling; `stop` are texts that end a completion.
        timeout: seconds a rollout may work; null is no limit.
        max_attempts: runs of one rollout before infrastructure faults end it.
        max_failed_fraction: of a step's rollouts may be unfit for training; more ends the job.
        num_cpus: what Ray reserves for each worker.
    """

    group_size: Rollouts = 8
    tasks_per_step: Rollouts = 16
    workers: Workers = 1
    concurrency: Rollouts = 64
    max_tokens: Positive = 512
    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Natural = 0
    min_p: Fraction = 0.0
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    timeout: Annotated[float, Field(gt=0)] | None = 300.0
    max_attempts: Positive = 3
    max_failed_fraction: Fraction = 0.1
    num_cpus: Annotated[float, Field(ge=0)] = 0.0

    def options(self) -> RolloutOptions:
        """The same, as the runner takes it."""
        sampling = Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            stop=tuple(self.stop),
        )
        return RolloutOptions(
            workers=self.workers,
            concurrency=self.concurrency,
            sampling=sampling,
            timeout=self.timeout,
            max_attempts=self.max_attempts,
            num_cpus=self.num_cpus,
        )


class AlgorithmConfig(_Part):
    """What is learned from a step's rollouts.

    Attributes:
        advantage: how rewards of a group become advantages.
        clip_low, clip_high, dual_clip: bounds of the probability ratio.
        ratio: of each token, or of whole sequences (GSPO).
        aggregation: how losses of tokens become one; `constant` divides by `constant_length` for each rollout.
        kl_coefficient: weight of the KL divergence from the starting policy; 0 keeps no copy of it.
        epochs: passes over a step's rollouts; minibatches: updates in each.
        max_tokens_per_batch: tokens, padding included, that go through the model at once.
    """

    advantage: Literal["grpo", "dr_grpo", "rloo", "reinforce"] = "grpo"
    clip_low: Fraction = 0.2
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    ratio: Literal["token", "sequence"] = "token"
    aggregation: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    constant_length: Positive | None = None
    kl_coefficient: Annotated[float, Field(ge=0)] = 0.0
    epochs: Positive = 1
    minibatches: Positive = 1
    max_tokens_per_batch: Positive = 16_384


class OptimizerConfig(_Part):
    """AdamW and its schedule.

    Attributes:
        lr: peak learning rate.
        schedule: from the peak down to `final_fraction` of it.
        warmup_steps: steps over which the rate rises.
        grad_clip: largest norm of the gradient; null is no limit.
    """

    lr: Annotated[float, Field(gt=0)] = 1e-6
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    grad_clip: Annotated[float, Field(gt=0)] | None = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Natural = 0
    final_fraction: Fraction = 0.1


class CheckpointConfig(_Part):
    """Checkpoints: every so many steps (0: only the last), the newest `keep` of them (null: all)."""

    every: Natural = 0
    keep: Positive | None = 2


class TrainingJob(_Part):
    """One training run.

    Attributes:
        agent: an `Agent`, or where one is: `module:attribute` or `file.py:attribute`.
        tasks: to train on: a list, a JSON, JSONL or Parquet file, or a `module:function` that makes them.
        eval_tasks: held out; evaluated before the first step, after the last, and every `eval_every`.
        output: folder for checkpoints, trajectories and metrics.
        loggers: where metrics go: `console`, `jsonl`, `tensorboard`.
        steps: updates.
        seed: of the tasks' order and of sampling.
        backend: `native`, `verl`, or another one that is installed.
        verl: settings of verl's own, for its backend; they win over what the job says otherwise.
    """

    agent: AgentSource
    tasks: TaskSource
    eval_tasks: TaskSource | None = None
    model: ModelConfig
    rollout: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    output: Path = Path("runs/job")
    loggers: list[Literal["console", "jsonl", "tensorboard"]] = ["console", "jsonl"]
    steps: Positive = 100
    eval_every: Natural = 0
    seed: int = 0
    backend: str = "native"
    verl: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _group_of_one_learns_nothing(self) -> TrainingJob:
        if self.algorithm.advantage in ("grpo", "dr_grpo", "rloo") and self.rollout.group_size < 2:
            raise ValueError(
                f"rollout.group_size must be at least 2 for algorithm.advantage={self.algorithm.advantage}: "
                "it compares the rollouts of a task"
            )
        return self
