"""The provider `process`: it isolates nothing, but leaves nothing either."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sandbox.boxes import SETTINGS, marked, running

from agentfly.errors import ConfigError, StartFailed
from agentfly.resources.sandbox import Sandbox, SandboxSpec
from agentfly.resources.sandbox.bubblewrap.limiting import own_cgroups

pytestmark = pytest.mark.filterwarnings("ignore:sandboxes of the provider 'process'")
DAEMONS = "setsid sh -c 'sleep 600 &' > /dev/null 2>&1; (setsid setsid sleep 600 > /dev/null 2>&1 &); echo up"


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("agentfly-process-*"))


async def test_daemons_and_files_go_with_it() -> None:
    mark, before = f"mark-{random.getrandbits(64)}", folders()
    async with running(provider="process", env={"MARK": mark}) as box:
        assert (await box.run(DAEMONS)).stdout == "up\n"
        await box.write("file", "x")
        assert len(marked(mark)) >= 3
        assert len(folders() - before) == 1
        await box.reset()
        assert not [process for process in marked(mark) if process.name() == "sleep"]
        assert await box.list() == []
    assert marked(mark) == []
    assert folders() == before


def left_by_a_killed_owner() -> Path:
    script = (
        "import asyncio, os, signal, warnings\nfrom agentfly.resources.sandbox import Sandbox, SandboxSpec\n"
        "warnings.simplefilter('ignore')\n"
        "async def main():\n    box = Sandbox(**SandboxSpec(provider='process').args)\n    await box.start()\n"
        "    await box.write('left', 'x')\n    print((await box.run('pwd')).stdout, end='', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\nasyncio.run(main())\n"
    )
    owner = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return Path(owner.stdout.strip())


async def test_what_a_killed_owner_left_is_swept_by_the_next() -> None:
    left = left_by_a_killed_owner()
    assert left.name.startswith("agentfly-process-")
    assert left in folders()
    async with running(provider="process"):
        assert left not in folders()


async def test_limits_hold_or_nothing_starts() -> None:
    if not own_cgroups().controllers >= {"memory", "pids"}:
        with pytest.raises(StartFailed, match="requires a limit of memory"):
            await Sandbox(**SandboxSpec(provider="process", require=["memory", "processes"]).args).start()
        return
    async with running(provider="process", memory="64MiB", max_processes=16, require=["memory", "processes"]) as box:
        eaters = "for n in 1 2 3 4; do head -c 40000000 /dev/zero | tail & done; wait"
        assert (await box.run(eaters)).status == "out_of_memory"
        assert "fork" in (await box.run("for n in $(seq 40); do sleep 5 & done")).stderr


def test_it_is_told_what_it_can_not_do() -> None:
    for wrong, told in (
        ({"require": ["disk"]}, "can't limit disk"),
        ({"mounts": {"/x": "/usr"}}, "nothing can be shown"),
        ({"python": "/usr/bin/python3"}, "runs the Python that runs it"),
        ({"provider_options": {"x": 1}}, "no option 'x'"),
        ({"image": "x"}, "has no images"),
    ):
        with pytest.raises(ConfigError, match=told):
            SandboxSpec(provider="process", **wrong)


@pytest.mark.filterwarnings("default")
async def test_it_warns() -> None:
    box = Sandbox(**SandboxSpec(**SETTINGS, provider="process").args)
    with pytest.warns(UserWarning, match="isolate nothing"):
        await box.start()
    await box.stop()
