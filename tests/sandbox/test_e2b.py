"""The provider `e2b`: the real SDK over loopback, against a server that speaks the service's API."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sandbox.e2b_server import E2bServer, e2b_server

from agentfly.context import Context, Task
from agentfly.errors import ConfigError, ResourceDied, StartFailed
from agentfly.resources import ResourceClient, start_manager, stop_manager
from agentfly.resources.sandbox import Sandbox, SandboxSpec
from agentfly.resources.sandbox.owners import machine, this_process


@pytest.fixture
async def server() -> AsyncIterator[E2bServer]:
    async with e2b_server() as running:
        yield running


def spec(server: E2bServer, **options: Any) -> SandboxSpec:
    return SandboxSpec(provider="e2b", provider_options=server.options(**options), disk="8MiB", env={"A": "b c"})


@asynccontextmanager
async def started(server: E2bServer, **options: Any) -> AsyncIterator[Sandbox]:
    box = Sandbox(**spec(server, **options).args)
    await box.start()
    try:
        yield box
    finally:
        await box.stop()


OWNER = """\
import asyncio, json, os, sys
from agentfly.resources import ResourceClient, start_manager, stop_manager
from agentfly.resources.sandbox import Sandbox, SandboxSpec

async def main():
    await Sandbox(**SandboxSpec(provider="e2b", provider_options=json.loads(sys.argv[1])).args).start()
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def killed_owner(server: E2bServer, **options: Any) -> None:
    """A process that starts a sandbox and is killed."""
    given = json.dumps(server.options(**options))
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, given)
    await owner.wait()


async def test_what_the_service_is_asked_for(server: E2bServer) -> None:
    async with started(server, lifetime=77) as box:
        (there,) = server.boxes.values()
        asked = there.request
        assert (asked["templateID"], asked["timeout"], asked["envVars"]) == ("base", 77, {"A": "b c"})
        assert asked["metadata"] == {"agentfly-machine": machine(), "agentfly-process": this_process()}
        assert asked["allow_internet_access"] is False
        assert (await box.run("echo $A")).stdout == "b c\n"
        await box.setup(image="other")
        (there,) = server.boxes.values()
        assert there.request["templateID"] == "other"
        await box.reset()
        (there,) = server.boxes.values()
        assert there.request["templateID"] == "base"
    assert server.boxes == {}


async def test_it_is_renewed_as_long_as_it_is_held_and_expires_otherwise(server: E2bServer) -> None:
    async with started(server, lifetime=3) as box:
        await server.until(lambda: server.count("POST", "/timeout") >= 4)
        assert (await box.run("echo still here")).stdout == "still here\n"
        assert await box.healthy()
    await killed_owner(server, lifetime=2)
    assert len(server.boxes) == 1
    await server.until(lambda: not server.boxes)


async def test_time_stands_still_while_it_is_paused(server: E2bServer) -> None:
    async with started(server, lifetime=3, pause_after=0.3) as box:
        await box.run_python("x = 1")
        counting = "n=0; while true; do n=$((n+1)); echo $n > new; mv new count; sleep 0.01; done"
        await box.run(f"({counting}) > /dev/null 2>&1 &")
        await server.until(lambda: server.count("POST", "/pause") == 1)
        (there,) = server.boxes.values()
        await server.until(lambda: there.state == "paused")
        before = (there.folder / "home" / "count").read_text()
        asked = len(server.requests)
        assert await box.healthy()  # which wakes nobody
        await asyncio.sleep(3.5)  # longer than it would live
        assert (there.folder / "home" / "count").read_text() == before
        assert [path for _, path in server.requests[asked:]] == [f"/sandboxes/{there.id}"]
        assert (await box.run_python("x + 1")).value == "2"
        assert there.state == "running"
        assert int((await box.run("sleep 0.1; cat count")).stdout) > int(before)


async def test_a_busy_one_is_not_paused(server: E2bServer) -> None:
    async with started(server, pause_after=0.1) as box:
        assert (await box.run("sleep 0.5; echo done")).stdout == "done\n"
        assert server.paused_while_busy == 0


async def test_one_that_is_gone_is_replaced_and_that_is_told(server: E2bServer) -> None:
    async with started(server) as box:
        await box.write("file", "x")
        (there,) = server.boxes.values()
        await server.remove(there)
        assert not await box.healthy()
        result = await box.run("cat file")
        assert (result.status, result.files_lost) == ("killed", True)
        assert await box.list() == []
        assert (await box.run("echo on")).stdout == "on\n"
    assert server.boxes == {}


async def test_code_that_ends_the_program_inside_ends_its_sandbox(server: E2bServer) -> None:
    async with started(server) as box:
        result = await box.run("kill -9 $(ps -eo pid,args | grep [i]nside.py | awk '{print $1}')")
        assert (result.status, result.files_lost) == ("killed", True)
        assert (await box.run("echo on")).stdout == "on\n"
        assert len(server.boxes) == 1


async def test_the_rate_limit_is_waited_out(server: E2bServer) -> None:
    server.faults.extend([("POST /v2/sandboxes", 429, "slow down")] * 2)
    async with started(server) as box:
        server.faults.extend([("POST /process.Process/Start", 429, "slow down")] * 2)
        assert (await box.run("echo once >> file; cat file")).stdout == "once\n"
        assert not server.faults


async def test_a_limit_that_never_ends_is_told(server: E2bServer) -> None:
    server.faults.extend([("POST /v2/sandboxes", 429, "slow down")] * 40)
    with pytest.raises(StartFailed, match="E2B makes no sandbox: .*429"):
        async with started(server, rate_limit_patience=0.2):
            pass
    server.faults.clear()


async def test_a_service_that_can_not_be_reached_is_no_fault_of_the_code(server: E2bServer) -> None:
    async with started(server) as box:
        server.faults.append(("POST /process.Process/Start", 502, "upstream connect error"))
        with pytest.raises(ResourceDied, match="can't be reached"):
            await box.run("true")
        assert (await box.run("echo on")).stdout == "on\n"


async def test_a_wrong_key_is_told(server: E2bServer) -> None:
    with pytest.raises(StartFailed, match="E2B makes no sandbox: .*401"):
        async with started(server, api_key="e2b_" + "1" * 40):
            pass


async def test_a_cancelled_start_leaves_nothing(server: E2bServer) -> None:
    for wanted in ("/v2/sandboxes", "/files", "/process.Process/Start"):
        before = server.count("POST", wanted)
        starting = asyncio.create_task(Sandbox(**spec(server).args).start())
        await server.until(lambda wanted=wanted, before=before: server.count("POST", wanted) > before)  # type: ignore[misc]
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await server.until(lambda: not server.boxes)


async def test_what_killed_processes_left_is_killed_at_the_next_start(server: E2bServer) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here, elsewhere = {"agentfly-machine": machine()}, {"agentfly-machine": "another"}
    owners = [
        {**here, "agentfly-process": f"{gone.pid}-1"},
        {**here, "agentfly-process": this_process()},
        {**elsewhere, "agentfly-process": f"{gone.pid}-1"},
        {},
    ]
    for owner in owners:
        server.add({"templateID": "base", "timeout": 60, "metadata": owner})
    await killed_owner(server, lifetime=600)
    assert len(server.boxes) == 4  # it has ended the first one
    # A service that was asked before in this process isn't asked again: so this one goes by another option.
    async with started(server, lifetime=123):
        assert len(server.boxes) == 4
        left = [box.request["metadata"] for box in server.boxes.values() if box.request["timeout"] == 60]
    assert left == owners[1:]


def test_options_are_checked_before_anything_starts() -> None:
    for options, told in (
        ({"lifetime": 0}, "provider_options: lifetime"),
        ({"speed": 1}, "provider_options: speed: extra inputs"),
        ({"workdir": "here"}, "provider_options: workdir"),
    ):
        with pytest.raises(ConfigError, match=told):
            SandboxSpec(provider="e2b", provider_options=options)
    for wrong, told in (
        ({"require": ["memory"]}, "by its template"),
        ({"mounts": {"/x": "/usr"}}, "runs elsewhere"),
        ({"packages": True}, "those of its template"),
        ({"python": "python3"}, "the option python"),
    ):
        with pytest.raises(ConfigError, match=told):
            SandboxSpec(provider="e2b", **wrong)


async def test_calls_side_by_side_and_how_long_they_take(server: E2bServer) -> None:
    async with started(server) as box:
        begun = time.monotonic()
        results = await asyncio.gather(*(box.run(f"sleep 0.5; echo {n}") for n in range(8)))
        assert [result.stdout.strip() for result in results] == [str(n) for n in range(8)]
        assert time.monotonic() - begun < 0.5 * 8


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
async def test_in_a_pool_leases_are_renewed_and_nothing_is_left(server: E2bServer) -> None:
    manager = start_manager(f"e2b-{os.urandom(4).hex()}")
    client = await ResourceClient.connect(manager)
    options = server.options(lifetime=30)
    pool = SandboxSpec(name="cloud", provider="e2b", provider_options=options, slots=2, max_size=2, idle_ttl=1.0)

    async def rollout(number: int) -> str:
        ctx = Context(rollout_id=f"r{number}", group_id="g", task=Task("t"), client=client)
        setup = {"files": {"mine": str(number)}, "image": f"template-{number}", "prepare": "cp mine copy"}
        box = await ctx.acquire(pool, setup=setup)
        await box.run_python("x = open('copy').read()")
        value = (await box.run_python("x")).value
        await ctx.close()
        return str(value)

    assert await asyncio.gather(*(rollout(number) for number in range(4))) == [f"'{number}'" for number in range(4)]
    assert {box.request["templateID"] for box in server.boxes.values()} <= {
        "base",
        *(f"template-{n}" for n in range(4)),
    }
    await client.close()
    await stop_manager(manager)
    await server.until(lambda: not server.boxes)
