"""One process: our loop in verl's own worker, its rows through verl's own training step, its weights back again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from agentfly.backends.verl.session import closing_sessions, sessions_of
from cpu_replica import CpuServer
from hydra import compose, initialize_config_module
from running import CPU, pipeline
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo import core_algos
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

GROUP = 4


class Client:
    """In the place of verl's client; only `generate` is asked of it."""

    def __init__(self, model: Path) -> None:
        self.server = CpuServer(str(model))
        self.calls = 0

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict, **media: Any) -> Any:
        self.calls += 1
        output = await self.server.generate(prompt_ids, dict(sampling_params), request_id)
        output.extra_fields.update(min_global_steps=0, max_global_steps=0)
        return output


@pytest.fixture(scope="module")
def diary() -> Iterator[Path]:
    """Ray, and the diary of the shelf."""
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield Path(os.environ["DIARY"])
    ray.shutdown()


def configure(model: Path, dataset: Path, loop: Path, *more: str) -> Any:
    settings = [line for line in pipeline(model, dataset) if line not in CPU[-5:]]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                *settings,
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loop}",
                "actor_rollout_ref.rollout.agent.default_agent_loop=digits",
                *more,
            ],
        )


def loop_file(folder: Path, **settings: Any) -> Path:
    lines = ["- name: digits", "  _target_: agentfly.backends.verl.loop.AgentFlyLoop"]
    lines += [f"  {name}: {value}" for name, value in settings.items()]
    file = folder / "loops.yaml"
    file.write_text("\n".join(lines))
    return file


def batch_of(worker: AgentLoopWorker, config: Any, dataset: Path, prompts: int = 2, group: int = GROUP) -> DataProto:
    rows = RLHFDataset(str(dataset), worker.tokenizer, config.data)
    batch = DataProto.from_single_dict(collate_fn([rows[index] for index in range(prompts)]))
    batch.non_tensor_batch["uid"] = np.array([f"p{index}" for index in range(prompts)], dtype=object)
    batch = batch.repeat(group, interleave=True)
    batch.meta_info["global_steps"] = 1
    return batch


def observation_tokens(worker: AgentLoopWorker, responses: torch.Tensor) -> torch.Tensor:
    """Where the text between the tags of a tool's answer stands, tags included."""
    begin = worker.tokenizer.convert_tokens_to_ids("<tool_response>")
    end = worker.tokenizer.convert_tokens_to_ids("</tool_response>")
    opened = (responses == begin).cumsum(1) - (responses == end).cumsum(1)
    return (opened > 0) | (responses == end)


async def test_rows_reach_the_policy_and_the_weights_come_back(
    diary: Path, model: Path, dataset: Path, tmp_path: Path
) -> None:
    config = configure(model, dataset, loop_file(tmp_path, agent="agents:agent", family="qwen3"))
    client = Client(model)
    worker = AgentLoopWorker(config, client, None, None)
    async with closing_sessions(client):
        batch = batch_of(worker, config, dataset)
        out = await worker.generate_sequences(batch)
        check_rows(worker, out)
        assert looks(diary) == out.non_tensor_batch["tool_calls"].sum()
        await leases_come_home(client)
        trainer = Trainer(config)
        advantages, _ = core_algos.get_adv_estimator_fn("grpo")(
            out.batch["rm_scores"].clone(), out.batch["response_mask"], out.non_tensor_batch["uid"]
        )
        assert trainer.gap(out) < 1e-4
        changed = trainer.step(out, advantages)
        assert changed > 0
        before = out.batch["rollout_log_probs"]
        await client.server.load_weights(trainer.weights(), 1)
        again = await worker.generate_sequences(batch_of(worker, config, dataset))
        assert not torch.equal(before, again.batch["rollout_log_probs"])
        assert trainer.gap(again) < 1e-4


def looks(diary: Path) -> int:
    return diary.read_text().count("look")


def check_rows(worker: AgentLoopWorker, out: DataProto) -> None:
    responses, mask = out.batch["responses"], out.batch["response_mask"]
    assert len(out) == 2 * GROUP
    observed = observation_tokens(worker, responses)
    assert observed.any(1).sum() >= GROUP, "the model was taught to call the tool"
    assert not (mask.bool() & observed).any()
    scores = out.batch["rollout_log_probs"]
    assert (scores[mask.bool()] < 0).all()
    assert (scores[~mask.bool()] == 0).all()
    assert (out.batch["rm_scores"].sum(1) <= 1).all()
    assert out.batch["rm_scores"].sum() > 0
    assert "acc" not in out.non_tensor_batch, "V0 gets only what every rollout has"
    assert (out.non_tensor_batch["seconds_generating"] > 0).all()
    assert (out.non_tensor_batch["__num_turns__"] == 2 * out.non_tensor_batch["turns"]).all()


async def leases_come_home(client: Client) -> None:
    (session,) = sessions_of(client).values()
    assert session.client is not None
    while (await session.client.stats())["shelf"].leased:
        await asyncio.sleep(0.05)


class Trainer:
    """verl's FSDP2 training worker, alone on gloo."""

    def __init__(self, config: Any) -> None:
        from verl.workers.config import TrainingWorkerConfig
        from verl.workers.engine_workers import TrainingWorker
        from verl.workers.utils.losses import ppo_loss

        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(29500 + os.getpid() % 1000))
        model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        actor.model_config = model
        settings = TrainingWorkerConfig(
            model_type="language_model",
            model_config=model,
            engine_config=actor.engine,
            optimizer_config=actor.optim,
            checkpoint_config=actor.checkpoint,
            profiler_config=None,
        )
        settings.engine_config.infer_micro_batch_size_per_gpu = 4
        settings.engine_config.micro_batch_size_per_gpu = 4
        settings.engine_config.use_dynamic_bsz = False
        self.worker = TrainingWorker(config=settings)
        self.worker.reset()
        self.worker.set_loss_fn(partial(ppo_loss, config=actor))

    def gap(self, out: DataProto) -> float:
        """Largest difference between the trainer's and the sampler's log-probabilities, over trained tokens."""
        return float(((self.scores(out) - out.batch["rollout_log_probs"]).abs() * out.batch["response_mask"]).max())

    def scores(self, out: DataProto) -> torch.Tensor:
        from verl.workers.utils.padding import no_padding_2_padding

        data = self._data(out)
        tu.assign_non_tensor(data, calculate_entropy=True, compute_loss=False, temperature=1.0)
        return no_padding_2_padding(tu.get(self.worker.infer_batch(data), "log_probs"), data).float()

    def step(self, out: DataProto, advantages: torch.Tensor) -> float:
        """One update; returns how much the weights changed."""
        before = torch.cat(
            [weight.full_tensor().flatten().clone() for weight in self.worker.engine.module.parameters()]
        )
        data = self._data(out)
        data["old_log_probs"], data["advantages"] = self.scores(out), advantages
        tu.assign_non_tensor(
            data,
            calculate_entropy=False,
            global_batch_size=len(out),
            mini_batch_size=len(out),
            epochs=1,
            seed=0,
            dataloader_kwargs={"shuffle": False},
            compute_loss=True,
            temperature=1.0,
        )
        self.worker.train_mini_batch(data)
        after = torch.cat([weight.full_tensor().flatten() for weight in self.worker.engine.module.parameters()])
        return float((after - before).abs().max())

    def weights(self) -> list[tuple[str, torch.Tensor]]:
        named, _ = self.worker.engine.get_per_tensor_param()
        return [(name, tensor.detach().clone()) for name, tensor in named]

    def _data(self, out: DataProto) -> Any:
        from verl.workers.utils.padding import left_right_2_no_padding

        data = DataProto.from_single_dict({**dict(out.batch.items()), "uid": out.non_tensor_batch["uid"]})
        data.meta_info["temperature"] = 1.0
        return left_right_2_no_padding(data.to_tensordict())
