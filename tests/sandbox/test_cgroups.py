"""Limits for all processes of a sandbox together."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from sandbox.boxes import running

from agentfly.errors import ConfigError, StartFailed
from agentfly.resources.sandbox import Sandbox, SandboxSpec
from agentfly.resources.sandbox.bubblewrap import limiting, provider
from agentfly.resources.sandbox.bubblewrap.cgroups import Group, GroupLimits
from agentfly.resources.sandbox.bubblewrap.hierarchy import label_of
from agentfly.resources.sandbox.bubblewrap.limiting import Cgroups, own_cgroups, sweep

LIMITS = GroupLimits(memory=1 << 28, cpus=0.5, processes=40)


SPAWN = """
import subprocess
count = 0
try:
    while count < 60:
        subprocess.Popen(["sleep", "9"])
        count += 1
except OSError:
    pass
count
"""


def folder_with(path: Path, *files: str) -> Path:
    path.mkdir()
    for name in files:
        (path / name).touch()
    return path


def test_limits_of_version_two(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "g", "memory.max", "memory.swap.max", "pids.max", "cpu.max", "memory.events")
    group = Group({folder: frozenset({"memory", "pids", "cpu"})})
    group.limit(LIMITS)
    written = {name: (folder / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max")}
    assert written == {
        "memory.max": "268435456",
        "memory.swap.max": "0",
        "pids.max": "40",
        "cpu.max": "50000 100000",
    }
    (folder / "memory.events").write_text("low 0\noom 5\noom_kill 3\n")
    assert group.oom_kills() == 3
    group.try_remove()
    assert group.oom_kills() == 0


def test_limits_of_version_one(tmp_path: Path) -> None:
    memory = folder_with(tmp_path / "m", "memory.limit_in_bytes", "memory.oom_control")
    cpu = folder_with(tmp_path / "c", "cpu.cfs_period_us", "cpu.cfs_quota_us")
    group = Group({memory: frozenset({"memory"}), cpu: frozenset({"cpu"})})
    group.limit(LIMITS)
    assert (memory / "memory.limit_in_bytes").read_text() == "268435456"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "50000"
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert group.oom_kills() == 2
    group.add(77)
    assert (cpu / "cgroup.procs").read_text() == "77"


def test_what_the_dead_have_left_is_swept_and_the_living_keep_theirs(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    namespace = os.stat("/proc/self/ns/pid").st_ino
    dead = tmp_path / label_of(namespace, child.pid, 5, 1)
    mine = tmp_path / limiting.new_label()
    elsewhere = tmp_path / label_of(namespace + 1, child.pid, 5, 1)
    for folder in (dead, mine, elsewhere):
        folder.mkdir()
    sweep(tmp_path)
    # A folder of files is no cgroup, where `cgroup.kill` lies there from the start.
    assert (dead / "cgroup.kill").exists()
    assert list(mine.iterdir()) == list(elsewhere.iterdir()) == []
    (dead / "cgroup.kill").unlink()


async def test_a_limit_that_must_hold_and_can_not_is_why_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "own_cgroups", lambda: Cgroups((), "memory, cpu, pids: no cgroups are mounted"))
    spec = SandboxSpec(require=["disk", "memory"])
    with pytest.raises(StartFailed, match="requires a limit of memory, which can't hold here .*no cgroups are mounted"):
        await Sandbox(**spec.args).start()
    async with running(require=["disk", "processes", "files"]) as box:
        assert (await box.run_python("1")).value == "1"
    with pytest.raises(ConfigError, match="no limit 'memroy'"):
        SandboxSpec(require=["memroy"])


async def test_the_limits_that_are_said_to_hold_do_hold() -> None:
    held = sorted(provider.held_limits())
    assert {"disk", "files", "processes"} <= set(held)
    async with running(require=held, cpus=0.2, memory="128MiB", max_processes=20, name="limited") as box:
        if "memory" in held:
            command = (
                "for i in 1 2 3 4; do python3 -c 'import time; x = b\"x\" * (90 << 20); time.sleep(2)' & done; wait"
            )
            assert (await box.run(command, timeout=60)).status == "out_of_memory"
        if "cpus" in held:
            code = (
                "import time\nbegun = time.monotonic()\nwhile time.process_time() < 0.4: pass\ntime.monotonic() - begun"
            )
            value = (await box.run_python(code)).value
            assert value is not None
            assert float(value) > 1.2
        started = await box.run_python(SPAWN)
        assert started.value is not None
        assert 15 < int(started.value) <= 20


def test_this_machine_is_told_about() -> None:
    found = own_cgroups()
    assert (found.reason == "") == (found.controllers == {"memory", "cpu", "pids"})
    names = {check.name: check for check in provider.BubblewrapProvider().checks()}
    assert names["bubblewrap"].found is not None
    assert names["Python in sandboxes"].found is not None
    assert "disk" in (names["limits of sandboxes"].found or "")
