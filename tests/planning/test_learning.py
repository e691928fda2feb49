"""What is learnt from a log is what has been."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from agentfly.context import Task
from agentfly.errors import ConfigError
from agentfly.planning.learning import learn_events, programs_of
from agentfly.planning.model import Give, Take
from agentfly.resources.core.types import Ending, Lease, LeaseEnded, PoolLimits
from agentfly.resources.event_log import EventLog
from agentfly.rollout.trajectory import Timing, Trajectory


class Clock:
    """Shows the time that it was set to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Writer:
    """Writes a log as a manager would."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "events.jsonl"
        self.clock = Clock()
        self.log = EventLog(str(self.path), self.clock)

    def lease(
        self,
        pool: str,
        holder: str,
        asked: float,
        granted: float,
        ended: float,
        *,
        how: Ending = "released",
    ) -> None:
        self.clock.now = ended
        lease = Lease("t", "c", pool, "h", 0, 1)
        self.log.lease_ended(pool, LeaseEnded(lease, holder, granted - asked, ended - granted, how))


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def rounded(program: object) -> list[object]:
    assert isinstance(program, (tuple, list))
    return [round(step, 3) if isinstance(step, float) else step for step in program]


def test_a_rollout_without_its_waiting(writer: Writer) -> None:
    writer.lease("web", "r", 106.0, 109.0, 110.0)
    writer.lease("box", "r", 103.0, 105.0, 112.0)
    writer.lease("model", "r", 100.0, 101.0, 112.001)
    writer.log.close()
    (program,) = learn_events(writer.path).programs
    work = [Take("model"), 2.0, Take("box"), 1.0, Take("web"), 1.0, Give("web")]
    assert rounded(program) == [*work, 2.001]


def test_waits_for_two_things_at_once_are_one_wait(writer: Writer) -> None:
    writer.lease("p", "r", 10.0, 14.0, 20.0)
    writer.lease("q", "r", 11.0, 16.0, 20.0)
    writer.log.close()
    (program,) = learn_events(writer.path).programs
    assert rounded(program) == [Take("p"), Take("q"), 4.0]


def test_pools_starts_and_resets(writer: Writer) -> None:
    limits = PoolLimits("box", slots=4, max_size=8)
    writer.log.pool_made("key", limits)
    writer.log.host_started("box", "h", 4, 1.5)
    writer.log.slot_reset("box", "h", 0, 0.25, renewed=False, ok=True)
    writer.log.slot_reset("box", "h", 0, 9.0, renewed=True, ok=True)
    writer.log.slot_reset("box", "h", 0, 9.0, renewed=False, ok=False)
    writer.lease("box", "r", 0.0, 1.0, 2.0)
    writer.log.close()
    learned = learn_events(writer.path)
    assert learned.limits == {"box": limits}
    assert learned.starts["box"].mean == 1.5
    assert learned.resets["box"].mean == 0.25
    assert learned.program(random.Random(0)) is learned.programs[0]


def test_leases_that_were_lost_or_nobodys_are_left_out(writer: Writer) -> None:
    writer.lease("box", "dead", 0.0, 1.0, 2.0, how="host_died")
    writer.lease("box", "", 0.0, 1.0, 2.0)
    writer.lease("box", "r", 0.0, 1.0, 2.0)
    writer.log.close()
    assert len(learn_events(writer.path).programs) == 1


def test_a_line_that_was_cut_ends_the_log(writer: Writer) -> None:
    writer.lease("box", "r", 0.0, 1.0, 2.0)
    writer.log.close()
    with writer.path.open("a") as file:
        file.write('{"event": "lea')
    assert len(learn_events(writer.path).programs) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no rollout has ended in this log"),
        ("{\n", "line 1 is no JSON"),
        ("{}\n", "line 1 is no event of a job: KeyError"),
        ("[1]\n", "line 1 is no event of a job: TypeError"),
        (json.dumps({"event": "start", "pool": "p", "seconds": "x"}) + "\n", "line 1 is no event"),
    ],
)
def test_what_is_no_log_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        learn_events(path)
    assert told in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_trajectories_tell_generation_and_the_rest() -> None:
    def played(**changes: object) -> Trajectory:
        trajectory = Trajectory("g.0", "g", 0, Task("t", {}))
        trajectory.timing = Timing(waiting=4.0, generating=6.0, tools=2.0, reward=1.0, total=14.0)
        trajectory.turns, trajectory.tool_calls = 3, 2
        for name, value in changes.items():
            setattr(trajectory, name, value)
        return trajectory

    programs = programs_of([played(), played(tool_calls=0), played(error="lost"), played(turns=0)], "model", ["box"])
    assert programs == [(Take("model"), 2.0, Take("box"), 8.0), (Take("model"), 2.0, 8.0)]
