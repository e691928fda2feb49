"""The provider `docker`: the real SDK over loopback, against a server that notes what the engine is asked for."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sandbox.docker_engine import DockerEngine, docker_engine

from agentfly.errors import ConfigError, ResourceDied, StartFailed
from agentfly.resources.sandbox import Sandbox, SandboxSpec
from agentfly.resources.sandbox.owners import machine, this_process


@pytest.fixture
async def engine() -> AsyncIterator[DockerEngine]:
    async with docker_engine() as running:
        yield running


def spec(engine: DockerEngine, **settings: Any) -> SandboxSpec:
    options = {"base_url": engine.url, "workdir": "/tmp/workspace", **settings.pop("provider_options", {})}
    given = {"image": "image:1", "disk": "8MiB", **settings}
    return SandboxSpec(provider="docker", provider_options=options, **given)


@asynccontextmanager
async def started(engine: DockerEngine, **settings: Any) -> AsyncIterator[Sandbox]:
    box = Sandbox(**spec(engine, **settings).args)
    await box.start()
    try:
        yield box
    finally:
        await box.stop()


async def test_what_the_engine_is_asked_for(engine: DockerEngine) -> None:
    options = {"user": "1000", "runtime": "runsc", "cap_add": ["CHOWN"]}
    limits = {"memory": "256MiB", "cpus": 1.5, "max_processes": 10, "require": ["memory", "cpus", "processes"]}
    async with started(engine, **limits, env={"A": "b c"}, mounts={"/data": "/usr"}, provider_options=options) as box:
        (container,) = engine.containers.values()
        asked, host = container.asked, container.asked["HostConfig"]
        assert (asked["Image"], asked["Env"], asked["User"]) == ("image:1", ["A=b c"], "1000")
        assert asked["Labels"] == {"agentfly.machine": machine(), "agentfly.process": this_process()}
        assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (1 << 28, 1 << 28, 1_500_000_000)
        assert (host["PidsLimit"], host["NetworkMode"], host["Runtime"]) == (26, "none", "runsc")
        assert (host["CapDrop"], host["CapAdd"], host["SecurityOpt"]) == (["ALL"], ["CHOWN"], ["no-new-privileges"])
        assert host["Binds"] == ["/usr:/data:ro"]
        assert (await box.run("echo $A")).stdout == "b c\n"
    assert engine.containers == {}
    async with started(engine, network=True):
        (container,) = engine.containers.values()
        assert container.asked["HostConfig"]["NetworkMode"] == "bridge"


async def test_a_lease_may_name_its_image_and_one_that_is_missing_is_fetched(engine: DockerEngine) -> None:
    async with started(engine) as box:
        await box.setup({"file": "x"}, image="task:7", prepare="mv file moved")
        (container,) = engine.containers.values()
        assert container.asked["Image"] == "task:7"
        assert engine.count("/images/create") == 1
        assert await box.read("moved") == "x"
        await box.setup(image="task:7")
        assert engine.count("/containers/create") == 3  # one was refused, for its image was missing
        await box.reset()
        (container,) = engine.containers.values()
        assert container.asked["Image"] == "image:1"
    with pytest.raises(StartFailed, match="starts no container of 'other:1': .*No such image"):
        async with started(engine, image="other:1", provider_options={"pull": False}):
            pass
    with pytest.raises(StartFailed, match="needs an image"):
        async with started(engine, image=None):
            pass


async def test_output_that_the_sdk_loses_is_asked_for_again(engine: DockerEngine) -> None:
    async with started(engine) as box:
        engine.glue = 2
        assert (await box.run("echo once >> file; cat file")).stdout == "once\n"
        engine.glue = 1
        await box.write("large", b"x" * 1_000_000)
        assert len(await box.read_bytes("large")) == 1_000_000
        assert engine.glue == 0


async def test_one_that_is_gone_is_replaced_and_that_is_told(engine: DockerEngine) -> None:
    async with started(engine) as box:
        (container,) = engine.containers.values()
        container.status = "exited"
        assert not await box.healthy()
        result = await box.run("true")
        assert (result.status, result.files_lost) == ("killed", True)
        (container,) = engine.containers.values()
        await engine.remove(container)
        assert (await box.run_python("1")).files_lost
        assert (await box.run("echo on")).stdout == "on\n"
    assert engine.containers == {}


async def test_an_engine_that_fails_is_no_fault_of_the_code(engine: DockerEngine) -> None:
    async with started(engine) as box:
        engine.faults["/exec"] = 500, "out of order"
        with pytest.raises(ResourceDied, match="out of order"):
            await box.run("true")
        assert (await box.run("echo on")).stdout == "on\n"
    engine.faults["/containers/create"] = 500, "no space left"
    with pytest.raises(StartFailed, match="no space left"):
        async with started(engine):
            pass


async def test_an_engine_that_is_not_there_is_told() -> None:
    box = Sandbox(**SandboxSpec(provider="docker", image="i", provider_options={"base_url": "tcp://127.0.0.1:1"}).args)
    with pytest.raises(StartFailed, match="starts no container"):
        await box.start()


async def test_an_image_without_python_is_told(engine: DockerEngine) -> None:
    with pytest.raises(StartFailed, match="has no 'python9'"):
        async with started(engine, provider_options={"python": "python9"}):
            pass
    assert engine.containers == {}


async def test_a_cancelled_start_leaves_nothing(engine: DockerEngine) -> None:
    for wanted in ("/containers/create", "/start", "/archive", "/exec"):
        before = engine.count(wanted)
        starting = asyncio.create_task(Sandbox(**spec(engine).args).start())
        await engine.until(wanted, before + 1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert engine.containers == {}


async def test_what_killed_processes_left_is_removed_at_the_next_start(engine: DockerEngine) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = {"agentfly.machine": machine()}
    dead, living = {"agentfly.process": f"{gone.pid}-1"}, {"agentfly.process": this_process()}
    for labels in ({**here, **dead}, {**here, **living}, dead):
        engine.create({"Image": "image:1", "Labels": labels})
    async with started(engine):
        left = [container.asked["Labels"] for container in engine.containers.values()]
        assert left[:2] == [{**here, **living}, dead]
        assert len(left) == 3


def test_settings_are_checked_before_anything_starts() -> None:
    for wrong, told in (
        ({"require": ["disk"]}, "can't limit disk"),
        ({"packages": True}, "those of its image"),
        ({"python": "python3"}, "the option python"),
        ({"mounts": {"x": "/usr"}}, "nothing can be shown at 'x'"),
        ({"provider_options": {"workdir": "x"}}, "provider_options: workdir"),
        ({"provider_options": {"speed": 1}}, "provider_options: speed"),
    ):
        with pytest.raises(ConfigError, match=told):
            SandboxSpec(provider="docker", image="i", **wrong)
