"""Runs that are ended from outside: in time, in order, leaving a checkpoint that goes on exactly and nothing else."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from cli.running import Command, write_job
from safetensors.numpy import load_file

from agentfly.resources.sandbox.bubblewrap.limiting import own_cgroups
from agentfly.rollout.storage import read_jsonl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_job(tmp_path)
    return tmp_path


def held(folder: Path) -> Command:
    """A training run that hangs in the middle of its third step."""
    (folder / "hold").touch()
    command = Command(folder, "train", "job.yaml")
    command.wait_until_held()
    if own_cgroups().places:
        assert command.places(), "its sandboxes are in groups"
    return command


def all_gone(run: Command) -> None:
    """Nothing of a run is left, though its driver could no longer clean up."""
    left = run.left(20)
    # Ray's own two helpers look a minute for the head that has gone; they hold nothing of the run's.
    assert set(left.values()) <= {"ray::DashboardAgent", "ray::RuntimeEnvAgent"}
    assert run.left(120) == {}
    assert run.places_left() == []


def checkpoints(output: Path) -> list[str]:
    return sorted(path.name for path in (output / "checkpoints").iterdir())


def test_ctrl_c_ends_a_run_and_resume_goes_on_as_if_nothing_had_been(folder: Path) -> None:
    run = held(folder)
    started = time.monotonic()
    os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    code = run.wait(60)
    seconds = time.monotonic() - started
    assert code == 130, run.told
    assert seconds < 10, run.told
    assert "stopped; go on with --resume" in run.told
    assert "Traceback" not in run.told
    assert run.left(2) == {}
    assert run.places_left() == []
    assert checkpoints(folder / "out") == ["step-00000002"]

    (folder / "hold").unlink()
    assert Command(folder, "train", "job.yaml", "--resume").wait() == 0
    straight = Command(folder, "train", "job.yaml", "output=straight")
    assert straight.wait() == 0, straight.told
    one, other = (list(read_jsonl(folder / name / "trajectories.jsonl")) for name in ("out", "straight"))
    assert [end.rollout_id for end in one] == [end.rollout_id for end in other]
    assert [end.messages for end in one] == [end.messages for end in other]
    weights = [load_file(folder / name / "checkpoints/step-00000004/model.safetensors") for name in ("out", "straight")]
    assert weights[0].keys() == weights[1].keys()
    for name, array in weights[0].items():
        assert (array == weights[1][name]).all(), name


def test_a_job_that_is_told_to_stop_stops_in_order(folder: Path) -> None:
    run = held(folder)
    run.process.terminate()  # as a scheduler does
    code = run.wait(60)
    assert code == 143, run.told
    assert run.left(2) == {}
    assert run.places_left() == []
    assert checkpoints(folder / "out") == ["step-00000002"]


def test_a_second_ctrl_c_does_not_wait_for_anything(folder: Path) -> None:
    run = held(folder)
    # Stopped, Ray's head can't answer: the first signal's cleanup would wait for long.
    head = next(pid for pid, command in run.left(0).items() if "gcs_server" in command.split()[0])
    os.kill(head, signal.SIGSTOP)
    started = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    while "stopping" not in run.told:
        assert run.process.poll() is None, run.told
        time.sleep(0.02)
    run.process.send_signal(signal.SIGINT)
    code = run.wait(60)
    seconds = time.monotonic() - started
    assert (code, seconds < 10) == (130, True), run.told
    all_gone(run)


def test_a_driver_that_is_killed_takes_everything_with_it(folder: Path) -> None:
    run = held(folder)
    run.process.kill()
    assert run.wait(10) == -signal.SIGKILL
    all_gone(run)


def test_ctrl_c_before_anything_has_begun_is_one_line(folder: Path) -> None:
    run = Command(folder, "train", "job.yaml")
    deadline = time.monotonic() + 120
    while "torch" not in Path(f"/proc/{run.process.pid}/maps").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(run.process.pid, signal.SIGINT)
    code = run.wait()
    assert code == 130, run.told
    assert "Traceback" not in run.told
    assert run.left(2) == {}
