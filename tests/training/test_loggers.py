"""Metrics reach every place, once for each step, whatever was interrupted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agentfly.errors import ConfigError
from agentfly.training.loggers import JsonlSink, make_logger


def report(folder: Path, *reports: tuple[int, dict[str, float]], names: tuple[str, ...] = ("jsonl",)) -> None:
    with make_logger(names, folder, 10) as logger:
        for step, metrics in reports:
            logger.log(step, metrics)


def told(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        assert line.pop("time") > 0
    return lines


def test_a_resumed_run_replaces_what_it_does_again(tmp_path: Path) -> None:
    report(tmp_path, (0, {"eval/reward": 0.1}), (1, {"reward": 0.2}), (2, {"reward": 0.3}), (2, {"eval/reward": 0.4}))
    report(tmp_path, (2, {"reward": 0.5}), (2, {"eval/reward": 0.6}), (3, {"reward": 0.7}))
    assert told(tmp_path) == [
        {"step": 0, "eval/reward": 0.1},
        {"step": 1, "reward": 0.2},
        {"step": 2, "reward": 0.5},
        {"step": 2, "eval/reward": 0.6},
        {"step": 3, "reward": 0.7},
    ]


def test_a_line_cut_by_a_kill_is_dropped(tmp_path: Path) -> None:
    report(tmp_path, (0, {"reward": 0.1}))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "rew')
    report(tmp_path, (1, {"reward": 0.2}))
    assert told(tmp_path) == [{"step": 0, "reward": 0.1}, {"step": 1, "reward": 0.2}]


def test_what_is_told_is_on_disk_at_once(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path)
    sink.log(1, {"reward": 0.5})
    assert told(tmp_path) == [{"step": 1, "reward": 0.5}]
    sink.close()


def test_a_run_that_reports_nothing_leaves_an_earlier_one_alone(tmp_path: Path) -> None:
    report(tmp_path, (0, {"reward": 0.1}))
    report(tmp_path)
    assert told(tmp_path) == [{"step": 0, "reward": 0.1}]


def test_the_console_shows_what_people_look_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(tmp_path, (3, {"reward": 0.12345, "grad_norm": 1.0, "seconds/update": 2.0}), names=("console",))
    assert capsys.readouterr().out == "step 3/10  reward 0.123  seconds/update 2\n"


def test_tensorboard_gets_every_metric(tmp_path: Path) -> None:
    report(tmp_path, (1, {"reward": 0.1}), (2, {"reward": 0.2}), names=("tensorboard",))
    report(tmp_path, (2, {"reward": 0.3}), names=("tensorboard",))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, round(event.value, 6)) for event in events.Scalars("reward")] == [(1, 0.1), (2, 0.3)]


def test_tensorboard_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"agentfly-rl\[native,tensorboard\]"):
        make_logger(["jsonl", "tensorboard"], tmp_path, 10)
