"""What a job writes for verl: the agent, the agent loop file, the datasets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import yaml
from agentfly.backends.verl.agents import PICKLED
from agentfly.backends.verl.fields import EVALUATION_COLUMN, TASK_COLUMN, as_column
from agentfly.backends.verl.translation import LOOP_NAME, Files
from ray import cloudpickle

from agentfly.agent import Agent
from agentfly.context import Task
from agentfly.training.backend import PreparedJob


def write_files(prepared: PreparedJob, recorder: str) -> Files:
    """Write them below the job's output, in the folder `verl`.

    Args:
        prepared: the job and its parts.
        recorder: name of the actor that is to get the trajectories.
    """
    output = prepared.job.output.resolve()
    folder = output / "verl"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agent.pkl").write_bytes(cloudpickle.dumps(prepared.agent))
    loop = folder / "agent_loops.yaml"
    loop.write_text(yaml.safe_dump([_loop(prepared, folder / "agent.pkl", recorder)]))
    train = folder / "train.parquet"
    _write_dataset(train, prepared.agent, _enough(prepared.tasks, prepared.job.rollout.tasks_per_step), False)
    evaluation = train
    if prepared.eval_tasks:
        evaluation = folder / "evaluation.parquet"
        _write_dataset(evaluation, prepared.agent, prepared.eval_tasks, True)
    return Files(loop, train, evaluation, output / "checkpoints")


def _loop(prepared: PreparedJob, agent: Path, recorder: str) -> dict[str, Any]:
    job = prepared.job
    return {
        "name": LOOP_NAME,
        "_target_": "agentfly.backends.verl.loop.AgentFlyLoop",
        "agent": f"{PICKLED}{agent}",
        "family": job.model.family,
        "chat_options": job.model.chat_options,
        "max_tokens": job.rollout.max_tokens,
        "timeout": job.rollout.timeout,
        "max_attempts": job.rollout.max_attempts,
        "concurrency": job.rollout.concurrency,
        "recorder": recorder,
    }


def _enough(tasks: Sequence[Task], least: int) -> list[Task]:
    """verl draws a step's tasks from one pass over the data: fewer than a step needs come several times."""
    return [task for _ in range(-(-least // len(tasks))) for task in tasks] if len(tasks) < least else list(tasks)


def _write_dataset(file: Path, agent: Agent, tasks: Sequence[Task], evaluation: bool) -> None:
    rows = [
        {
            "data_source": "agentfly",
            "prompt": [_plain(message) for message in agent.open(task)],
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": index},
            TASK_COLUMN: as_column(task),
            EVALUATION_COLUMN: evaluation,
        }
        for index, task in enumerate(tasks)
    ]
    aside = file.with_suffix(".part")
    parquet.write_table(pa.Table.from_pylist(rows), aside)
    aside.replace(file)


def _plain(message: Any) -> dict[str, str]:
    """A message as verl shows it in its logs; the rollout opens its conversation from the task itself."""
    content = message.get("content") or ""
    return {"role": message["role"], "content": content if isinstance(content, str) else json.dumps(content)}
