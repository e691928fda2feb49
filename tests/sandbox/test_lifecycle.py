"""Starting, resetting, ending: nothing is left, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from sandbox.boxes import SETTINGS, marked, running

from agentfly.errors import ConfigError, ResourceDied, StartFailed, ToolError
from agentfly.resources.sandbox import Sandbox, SandboxSpec
from agentfly.resources.sandbox.bubblewrap.limiting import own_cgroups

FORK_AND_STAY = "setsid sh -c 'sleep 600 &' > /dev/null 2>&1; (sleep 600 &) ; echo up"


async def nothing_left(mark: str) -> bool:
    for _ in range(500):
        if not marked(mark):
            return True
        await asyncio.sleep(0.02)
    return False


def groups_of(pid: int) -> list[Path]:
    """The cgroups that a process has made."""
    return [path for place in own_cgroups().places for path in Path(place.folder).glob(f"agentfly-*-{pid}-*")]


async def test_reset_leaves_nothing(any_box: Sandbox) -> None:
    await any_box.setup(files={"given.txt": "1", "folder/bytes": b"\xff"})
    assert await any_box.read_bytes("folder/bytes") == b"\xff"
    await any_box.run_python("x = 1")
    await any_box.reset()
    assert "NameError" in str(await any_box.run_python("x"))
    assert await any_box.list() == []


async def test_daemons_and_temporary_files_die_with_a_reset(box: Sandbox) -> None:
    await box.run(FORK_AND_STAY + "; touch /tmp/left /dev/shm/left")
    await box.reset()
    assert (await box.run("ls /tmp /dev/shm; cat /proc/[0-9]*/comm")).stdout.count("sleep") == 0
    assert await box.list("/tmp") == []


async def test_stopping_ends_every_process_and_cgroup() -> None:
    mark = f"mark-{random.getrandbits(64)}"
    boxes = [Sandbox(**SandboxSpec(**SETTINGS, env={"MARK": mark}).args) for _ in range(4)]
    await asyncio.gather(*(box.start() for box in boxes))
    await asyncio.gather(*(box.run(FORK_AND_STAY) for box in boxes))
    assert len(marked(mark)) >= 16
    await asyncio.gather(*(box.stop() for box in boxes))
    assert marked(mark) == []
    assert groups_of(os.getpid()) == []
    await asyncio.gather(*(box.stop() for box in boxes))
    with pytest.raises(ResourceDied, match="stopped"):
        await boxes[0].run_python("1")
    assert not await boxes[0].healthy()


async def test_no_descriptor_is_left() -> None:
    async with running() as box:
        await box.reset()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            await box.reset()
        assert len(os.listdir("/proc/self/fd")) == before


async def test_starts_that_are_cancelled_at_any_moment_leave_nothing() -> None:
    """Killing bubblewrap while it sets up is known to leave live trees behind."""
    mark = f"mark-{random.getrandbits(64)}"
    spec = SandboxSpec(**SETTINGS, env={"MARK": mark})
    chance = random.Random(1)
    for _ in range(40):
        box = Sandbox(**spec.args)
        starting = asyncio.create_task(box.start())
        await asyncio.sleep(chance.uniform(0, 0.03))
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await box.stop()
    assert await nothing_left(mark)
    assert groups_of(os.getpid()) == []


async def test_sandboxes_die_with_a_process_that_is_killed() -> None:
    mark = f"mark-{random.getrandbits(64)}"
    script = Path(__file__).with_name("owner.py")
    owner = subprocess.Popen([sys.executable, str(script), mark], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    try:
        assert await asyncio.to_thread(owner.stdout.readline) == b"up\n"
        assert len(marked(mark)) > 6
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    assert await nothing_left(mark)
    for _ in range(200):
        own_cgroups.cache_clear()  # looking again sweeps; the kernel may take its time to forget the dead in them
        own_cgroups()
        if not groups_of(owner.pid):
            break
        await asyncio.sleep(0.05)
    assert groups_of(owner.pid) == []


async def test_a_sandbox_that_ends_is_started_anew_and_the_result_says_so(box: Sandbox) -> None:
    """Whoever could make this a fault of the infrastructure could have failures forgotten."""
    await box.setup({"given": "g"})
    await box.write("written", "w")
    for attempt in ("run_python", "run", "read"):
        await asyncio.to_thread(end_from_outside)
        if attempt == "run_python":
            python = await box.run_python("1")
            assert (python.status, python.state_lost, python.files_lost) == ("killed", True, True)
            assert "started anew" in str(python)
        elif attempt == "run":
            command = await box.run("true")
            assert (command.status, command.files_lost, command.exit_code) == ("killed", True, None)
        else:
            with pytest.raises(ToolError, match="started anew"):
                await box.read("given")
        assert [entry.name for entry in await box.list()] == ["given"]


def end_from_outside() -> None:
    """As the kernel might, when memory runs out."""
    (bwrap,) = [child for child in psutil.Process().children() if child.name() == "bwrap"]
    bwrap.kill()
    bwrap.wait(10)


async def test_a_call_in_progress_hears_of_the_end(box: Sandbox) -> None:
    call = asyncio.create_task(box.run("touch begun; sleep 600"))
    while not await box.list():
        await asyncio.sleep(0.01)
    await asyncio.to_thread(end_from_outside)
    result = await asyncio.wait_for(call, 30)
    assert (result.status, result.files_lost) == ("killed", True)
    assert await box.healthy()


async def test_many_at_once() -> None:
    boxes = [Sandbox(**SandboxSpec(**SETTINGS).args) for _ in range(64)]
    await asyncio.gather(*(box.start() for box in boxes))
    try:
        results = await asyncio.gather(*(box.run_python(f"{n} ** 2") for n, box in enumerate(boxes)))
        assert [result.value for result in results] == [str(n**2) for n in range(64)]
        assert all(await asyncio.gather(*(box.healthy() for box in boxes)))
    finally:
        await asyncio.gather(*(box.stop() for box in boxes))


async def test_the_loop_of_the_host_is_not_held() -> None:
    async with running() as box:
        longest, last = 0.0, asyncio.get_running_loop().time()
        call = asyncio.create_task(box.run("sleep 0.5"))
        while not call.done():
            await asyncio.sleep(0)
            now = asyncio.get_running_loop().time()
            longest, last = max(longest, now - last), now
        assert longest < 0.4


async def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing-there can't be shown"):
        await Sandbox(**SandboxSpec(mounts={"/data": "/nothing-there"}).args).start()
    with pytest.raises(ConfigError, match="no program that everybody may run"):
        await Sandbox(**SandboxSpec(python=str(tmp_path)).args).start()
    with pytest.raises(StartFailed, match="did not start: .*usr/new"):
        await Sandbox(**SandboxSpec(mounts={"/usr/new": "/usr/bin"}).args).start()
    assert not [child for child in psutil.Process().children() if child.name() == "bwrap"]
    assert groups_of(os.getpid()) == []


async def test_what_is_mounted_can_be_read_and_not_written() -> None:
    async with running(mounts={"/data": "/usr/include"}, env={"COLOUR": "red"}) as box:
        assert (await box.run("ls /data | wc -l; echo $COLOUR; touch /data/x")).exit_code != 0
        assert (await box.run("echo $COLOUR; ls -d /data")).stdout == "red\n/data\n"


async def test_a_stopped_owner_is_no_zombie_keeper(box: Sandbox) -> None:
    """Whatever ends inside is collected inside."""
    await box.run("for n in $(seq 20); do (true &) ; done; sleep 0.2")
    states = (await box.run("cat /proc/[0-9]*/stat | cut -d ' ' -f 3")).stdout
    assert "Z" not in states
