from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from agentfly.backends.native import checkpoint
from agentfly.backends.native.learner import Learner, LearnerOptions
from agentfly.backends.native.optimizer import Optimizer, OptimizerOptions
from agentfly.backends.native.policy import Policy
from agentfly.backends.native.trainer import Trainer, TrainerOptions
from native.toys import BanditSource, bandit_tasks, tiny_learner

from agentfly.errors import AgentFlyError
from agentfly.rollout.request import GroupRequest
from agentfly.rollout.storage import read_jsonl
from agentfly.rollout.trajectory import Group


def options(steps: int, **changes: Any) -> TrainerOptions:
    return TrainerOptions(**{"steps": steps, "tasks_per_step": 3, "group_size": 6, "seed": 3, **changes})


def trainer(folder: Path, settings: TrainerOptions, *, learner: Learner | None = None, **changes: Any) -> Trainer:
    learner = learner or tiny_learner(folder / "model", lr=2e-2, steps=settings.steps)
    defaults: dict[str, Any] = {
        "source": BanditSource(folder / "model"),
        "tasks": bandit_tasks(),
        "eval_tasks": [],
        "checkpoints": folder / "checkpoints",
        "trajectories": folder / "trajectories.jsonl",
    }
    arguments = defaults | changes
    source, tasks, eval_tasks = arguments.pop("source"), arguments.pop("tasks"), arguments.pop("eval_tasks")
    return Trainer(learner, source, tasks, eval_tasks, settings, **arguments)


def resumed(folder: Path, settings: TrainerOptions, **changes: Any) -> Trainer:
    place = checkpoint.newest(folder / "checkpoints")
    policy = Policy.load(place, device="cpu")
    adam = Optimizer(policy.model.parameters(), OptimizerOptions(lr=2e-2), settings.steps)
    adam.load_state(checkpoint.load_optimizer(place))
    learner = Learner(policy, adam, LearnerOptions())
    return trainer(folder, settings, learner=learner, progress=checkpoint.load_progress(place), **changes)


async def test_it_learns(tmp_path: Path) -> None:
    seen: list[tuple[int, Mapping[str, float]]] = []
    run = trainer(
        tmp_path,
        options(40, eval_every=20, tasks_per_step=6, group_size=12),
        eval_tasks=bandit_tasks() * 4,
        log=lambda step, metrics: seen.append((step, metrics)),
    )
    await run.run()
    evaluations = {step: metrics["eval/reward"] for step, metrics in seen if "eval/reward" in metrics}
    assert list(evaluations) == [0, 20, 40]
    assert evaluations[0] < 0.5
    assert evaluations[40] > 0.9
    gaps = [metrics["logprob_gap"] for _, metrics in seen if "logprob_gap" in metrics]
    assert max(gaps) < 1e-3
    assert all(metrics["staleness"] == 0 for _, metrics in seen if "staleness" in metrics)


async def test_two_steps_and_two_more_are_four_bit_by_bit(tmp_path: Path) -> None:
    straight = trainer(tmp_path / "a", options(4))
    await straight.run()
    await trainer(tmp_path / "b", options(2)).run()
    again = resumed(tmp_path / "b", options(4))
    await again.run()

    one, other = straight._learner, again._learner
    for name, array in one.policy.weights().items():
        assert (other.policy.weights()[name] == array).all(), name
    moments = zip(
        one.optimizer.state()["adam"]["state"].values(), other.optimizer.state()["adam"]["state"].values(), strict=True
    )
    for first, second in moments:
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert straight.progress == again.progress
    files = [(tmp_path / name / "trajectories.jsonl").read_bytes() for name in ("a", "b")]
    assert files[0] == files[1]


async def test_what_came_after_the_checkpoint_is_done_again_not_twice(tmp_path: Path) -> None:
    settings = options(3, checkpoint_every=1, keep=None)
    await trainer(tmp_path, settings).run()
    for name in ("step-00000003", "step-00000002"):
        (tmp_path / "checkpoints" / name / "trainer_state.json").unlink()
    whole = (tmp_path / "trajectories.jsonl").read_bytes()
    await resumed(tmp_path, settings).run()
    assert (tmp_path / "trajectories.jsonl").read_bytes() == whole
    assert len(list(read_jsonl(tmp_path / "trajectories.jsonl"))) == 3 * 3 * 6


async def test_tasks_are_drawn_in_order_whatever_finishes_first(tmp_path: Path) -> None:
    run = trainer(tmp_path, options(4))
    await run.run()
    source = run._source
    assert isinstance(source, BanditSource)
    by_step = [[r.task.id for r in source.requests if r.id.startswith(f"{step}-")] for step in range(4)]
    assert sorted(by_step[0] + by_step[1]) == sorted(task.id for task in bandit_tasks())
    assert sorted(by_step[2] + by_step[3]) == sorted(task.id for task in bandit_tasks())


async def test_a_few_failures_are_left_out_and_counted(tmp_path: Path) -> None:
    run = trainer(tmp_path, options(2, max_failed_fraction=0.2))
    run._source = BanditSource(tmp_path / "model", broken=2)
    await run.run()
    assert run.metrics["failed"] == 3
    assert run.progress.step == 2


async def test_too_many_failures_stop_the_job_with_their_reason(tmp_path: Path) -> None:
    run = trainer(tmp_path, options(2, max_failed_fraction=0.1))
    run._source = BanditSource(tmp_path / "model", broken=0)
    with pytest.raises(
        AgentFlyError, match=r"3 of 18 rollouts .*allowed: 10%.* 3 of them because: the sandbox is gone"
    ):
        await run.run()
    assert checkpoint.newest(tmp_path / "checkpoints").name == "step-00000000"


class Hanging(BanditSource):
    """Plays two steps and then never answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hanging = asyncio.Event()

    async def run(self, requests: Iterable[GroupRequest]) -> AsyncIterator[Group]:
        if self.version == 2:
            self.hanging.set()
            await asyncio.Event().wait()
        async for group in super().run(requests):
            yield group


async def test_cancelled_it_leaves_a_checkpoint_that_goes_on_exactly(tmp_path: Path) -> None:
    run = trainer(tmp_path, options(4))
    source = Hanging(tmp_path / "model")
    run._source = source
    task = asyncio.create_task(run.run())
    await source.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert checkpoint.load_progress(checkpoint.newest(tmp_path / "checkpoints")).step == 2
    again = resumed(tmp_path, options(4))
    await again.run()

    straight = trainer(tmp_path / "straight", options(4))
    await straight.run()
    for name, array in straight._learner.policy.weights().items():
        assert (again._learner.policy.weights()[name] == array).all(), name


async def test_cancelled_in_the_middle_of_an_update_nothing_is_half_done(tmp_path: Path) -> None:
    run = trainer(tmp_path, options(4, group_size=40))
    learner = run._learner
    loop, started = asyncio.get_running_loop(), asyncio.Event()
    accumulate = learner._accumulate

    def slow(samples: Any, stopped: Any) -> Any:
        loop.call_soon_threadsafe(started.set)
        while not stopped():
            pass
        return accumulate(samples, stopped)

    learner._accumulate = slow  # type: ignore[method-assign]
    before = learner.policy.weights()
    task = asyncio.create_task(run.run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    place = checkpoint.newest(tmp_path / "checkpoints")
    assert checkpoint.load_progress(place).step == 0
    saved = Policy.load(place, device="cpu").weights()
    assert all((saved[name] == array).all() for name, array in before.items())


async def test_an_error_in_the_middle_of_an_update_leaves_the_last_whole_checkpoint(tmp_path: Path) -> None:
    run = trainer(tmp_path, options(4, group_size=40, checkpoint_every=1))
    optimizer, step = run._learner.optimizer, run._learner.optimizer.step

    def fail(loss: float) -> dict[str, float]:
        metrics = step(loss)
        if optimizer.steps == 3:
            raise AgentFlyError("gradients are not finite")
        return metrics

    optimizer.step = fail  # type: ignore[method-assign]
    with pytest.raises(AgentFlyError, match="not finite"):
        await run.run()
    assert checkpoint.newest(tmp_path / "checkpoints").name == "step-00000002"


async def test_weights_that_do_not_arrive_are_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Deaf(BanditSource):
        async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
            self.version = version

    run = trainer(tmp_path, options(30, group_size=12))
    run._source = Deaf(tmp_path / "model")
    await run.run()
    assert "may sample from other weights" in caplog.text


async def test_rollouts_that_stop_a_job_can_be_looked_at(tmp_path: Path) -> None:
    run = trainer(tmp_path, options(2, max_failed_fraction=0.1))
    run._source = BanditSource(tmp_path / "model", broken=0)
    with pytest.raises(AgentFlyError):
        await run.run()
    failed = [t for t in read_jsonl(tmp_path / "trajectories.jsonl") if not t.trainable]
    assert [trajectory.error for trajectory in failed] == ["the sandbox is gone"] * 3
