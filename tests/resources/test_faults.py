"""kill -9 on everything: nothing is lost, doubled, or left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import cloudpickle
from resources.conftest import is_alive, pid_of, wait_until
from resources.toys import Child, Counter

from agentfly.errors import ResourceDied, StaleLease
from agentfly.resources import Fault, Lease, ResourceClient, ResourceSpec, start_manager, stop_manager

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.slow


class Process:
    """Another client process."""

    async def connect(self, manager: Any) -> int:
        """Returns its process id."""
        self.client = await ResourceClient.connect(manager)
        self.leases: list[Lease[Counter]] = []
        self.faults: list[Fault] = []
        return os.getpid()

    async def acquire(self, spec: ResourceSpec[Counter]) -> int:
        """Lease one more and use it."""
        self.leases.append(await self.client.acquire(spec, faults=self.faults.append))
        return await self.leases[-1].resource.add()

    async def add(self) -> int:
        """Use the last one."""
        return await self.leases[-1].resource.add()


async def start_process(manager: Any) -> tuple[Any, int]:
    actor = ray.remote(Process).options(num_cpus=0, max_concurrency=100).remote()
    return actor, await actor.connect.remote(manager)


async def test_leases_of_a_killed_client_come_home(
    manager: Any, client: ResourceClient, kill: Callable[[int], None]
) -> None:
    spec = ResourceSpec(Counter, name="killed_client", max_size=2)
    actor, pid = await start_process(manager)
    await actor.acquire.remote(spec)
    await actor.acquire.remote(spec)
    third = asyncio.create_task(client.acquire(spec))  # waits behind the doomed
    fourth = asyncio.create_task(client.acquire(spec))
    while (await client.stats())["killed_client"].waiting < 2:
        await asyncio.sleep(0.01)
    kill(pid)
    leases = await asyncio.wait_for(asyncio.gather(third, fourth), 30)
    assert [(await lease.resource.state())[3] for lease in leases] == [1, 1], "they were reset"


async def test_a_killed_host_fails_its_calls_and_is_replaced(
    client: ResourceClient, kill: Callable[[int], None]
) -> None:
    spec = ResourceSpec(Counter, name="killed_host", max_size=1)
    faults: list[Fault] = []
    lease = await client.acquire(spec, faults=faults.append)
    pid = await lease.resource.pid()
    waiting = asyncio.create_task(client.acquire(spec))
    hanging = asyncio.create_task(lease.resource.hang())
    await lease.resource.add()
    kill(pid)
    with pytest.raises(ResourceDied, match="killed_host"):
        await asyncio.wait_for(hanging, 30)
    assert [fault.kind for fault in faults] == ["ResourceDied"]
    assert lease.lost
    replaced = await asyncio.wait_for(waiting, 60)
    assert await replaced.resource.pid() != pid
    lease.release()
    assert await replaced.resource.add() == 1
    assert (await client.stats())["killed_host"].deaths == 1


async def test_a_killed_manager_neither_loses_nor_doubles_a_lease(
    manager: Any, client: ResourceClient, kill: Callable[[int], None]
) -> None:
    exclusive = ResourceSpec(Counter, name="exclusive", slots=2, max_size=4)
    shared = ResourceSpec(Counter, name="shared", slots=3, max_size=3, shared=True)
    other, _ = await start_process(manager)
    mine = [await client.acquire(exclusive) for _ in range(2)]
    permit = await client.acquire(shared)
    assert await other.acquire.remote(exclusive) == 1
    assert await mine[0].resource.add(10) == 10
    kill(await pid_of(manager))
    assert await mine[0].resource.add(10) == 20, "calls don't need the manager"
    late = await asyncio.wait_for(client.acquire(exclusive), 60)  # the fourth slot, which nobody has
    assert await late.resource.add() == 1
    assert await other.add.remote() == 2
    assert await mine[0].resource.add(10) == 30
    fifth = asyncio.create_task(client.acquire(exclusive))
    while (stats := await client.stats())["exclusive"].waiting < 1:
        await asyncio.sleep(0.01)
    assert stats["exclusive"].leased == 4
    assert stats["shared"].leased == 1
    assert len({await lease.resource.identity() for lease in [*mine, late]}) == 3
    mine[0].release()
    again = await asyncio.wait_for(fifth, 30)
    assert await again.resource.add() == 1, "reset, as ever"
    permit.release()
    others = await asyncio.gather(*(client.acquire(shared) for _ in range(3)))
    assert await others[0].resource.add() == 1


async def test_waiters_outlive_the_manager(manager: Any, client: ResourceClient, kill: Callable[[int], None]) -> None:
    spec = ResourceSpec(Counter, name="waiters", max_size=1)
    held = await client.acquire(spec)
    order: list[int] = []

    async def wait(age: int) -> None:
        lease = await client.acquire(spec, priority=age)
        order.append(age)
        lease.release()

    waiting = [asyncio.create_task(wait(age)) for age in (3, 1, 2)]
    while (await client.stats())["waiters"].waiting < 3:
        await asyncio.sleep(0.01)
    kill(await pid_of(manager))
    held.release()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert order == [1, 2, 3]


async def test_client_and_manager_killed_together(
    manager: Any, client: ResourceClient, kill: Callable[[int], None]
) -> None:
    spec = ResourceSpec(Counter, name="both", max_size=1)
    actor, pid = await start_process(manager)
    await actor.acquire.remote(spec)
    waiting = asyncio.create_task(client.acquire(spec))
    while (await client.stats())["both"].waiting < 1:
        await asyncio.sleep(0.01)
    kill(pid)
    kill(await pid_of(manager))
    lease = await asyncio.wait_for(waiting, 60)
    assert await lease.resource.add() == 1


async def test_weights_reach_hosts_that_start_after_the_managers_death(
    manager: Any, client: ResourceClient, kill: Callable[[int], None]
) -> None:
    spec = ResourceSpec(Counter, name="weights", max_size=2)
    first = await client.acquire(spec)
    await client.broadcast(spec, "add", 7, replay=True)
    kill(await pid_of(manager))
    second = await asyncio.wait_for(client.acquire(spec), 60)
    assert await second.resource.add(0) == await first.resource.add(0) == 7


async def test_a_client_taken_for_dead_learns_that_its_leases_are_gone(manager: Any, client: ResourceClient) -> None:
    spec = ResourceSpec(Counter, name="silent", max_size=1)
    actor, pid = await start_process(manager)
    await actor.acquire.remote(spec)
    os.kill(pid, signal.SIGSTOP)
    try:
        lease = await asyncio.wait_for(client.acquire(spec), 30)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert await lease.resource.add() == 1
    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        await actor.add.remote()
    assert isinstance(caught.value.cause, StaleLease)
    lease.release()
    assert await asyncio.wait_for(actor.acquire.remote(spec), 30) == 1, "it is welcome again"


async def test_a_host_that_hangs_is_given_up(client: ResourceClient) -> None:
    spec = ResourceSpec(Counter, name="hanging", max_size=1, health_interval=0.5, health_timeout=2.0)
    lease = await client.acquire(spec)
    with pytest.raises(ResourceDied):
        await asyncio.wait_for(lease.resource.block(), 60)
    lease.release()
    assert await (await client.acquire(spec, timeout=60)).resource.add() == 1


async def test_stopping_leaves_nothing(ray_cluster: None) -> None:
    manager = start_manager("test-stopping")
    client = await ResourceClient.connect(manager)
    spec = ResourceSpec(Child, slots=2, max_size=4)
    leases = [await client.acquire(spec) for _ in range(3)]
    pids = {pid for lease in leases for pid in await lease.resource.pids()}
    assert len(pids) == 5
    waiting = asyncio.create_task(client.acquire(ResourceSpec(Child, name="never", num_cpus=1000)))
    while "never" not in await client.stats():
        await asyncio.sleep(0.01)
    await stop_manager(manager)
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids), 10)
    with pytest.raises(Exception, match="stopped|gone"):
        await waiting
    await client.close()


async def test_a_killed_driver_leaves_nothing(ray_cluster: None, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import asyncio, sys
        sys.path.insert(0, sys.argv[1])
        import ray
        import resources.toys
        from ray import cloudpickle
        from agentfly.resources import ResourceClient, ResourceSpec, start_manager
        cloudpickle.register_pickle_by_value(resources.toys)
        ray.init(address=sys.argv[2], log_to_driver=False)

        async def main():
            client = await ResourceClient.connect(start_manager("test-killed-driver"))
            lease = await client.acquire(ResourceSpec(resources.toys.Child))
            print(*await lease.resource.pids(), flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """)
    tests = str(Path(__file__).parents[1])
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", script, tests, address]
    driver = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=tmp_path)
    try:
        assert driver.stdout is not None
        pids = [int(pid) for pid in (await asyncio.wait_for(driver.stdout.readline(), 60)).split()]
        assert len(pids) == 2
    finally:
        driver.kill()
        await driver.wait()
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids), 30)
