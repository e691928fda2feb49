"""A whole node dies. In a process of its own: it needs a cluster of three nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from resources.clusters import run_script

pytestmark = pytest.mark.slow

SCRIPT = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
import ray
import resources.toys
from ray import cloudpickle
from ray.cluster_utils import Cluster
from agentfly.errors import ResourceDied
from agentfly.resources import ResourceClient, ResourceSpec, start_manager, stop_manager

cloudpickle.register_pickle_by_value(resources.toys)


async def node_of(pid):
    for node in nodes:
        raylet = node.all_processes["raylet"][0].process.pid
        with open(f"/proc/{pid}/stat") as stat:
            if int(stat.read().rpartition(")")[2].split()[1]) == raylet:
                return node


async def main():
    manager = start_manager("test-node")
    client = await ResourceClient.connect(manager)
    spec = ResourceSpec(resources.toys.Counter, max_size=1, resources={"site": 1})
    lease = await client.acquire(spec)
    waiting = asyncio.create_task(client.acquire(spec))
    hanging = asyncio.create_task(lease.resource.hang())
    doomed = await node_of(await lease.resource.pid())
    cluster.remove_node(doomed, allow_graceful=False)
    try:
        await asyncio.wait_for(hanging, 60)
    except ResourceDied:
        print("died")
    successor = await asyncio.wait_for(waiting, 120)
    assert await node_of(await successor.resource.pid()) is not doomed
    print("replaced", await successor.resource.add())
    await client.close()
    await stop_manager(manager)


cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1, resources={"site": 1}) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False)
try:
    asyncio.run(main())
finally:
    ray.shutdown()
    cluster.shutdown()
"""


async def test_leases_of_a_dead_node_die_and_others_go_on_elsewhere(tmp_path: Path) -> None:
    lines = await run_script(SCRIPT, tmp_path, 200)
    told = [line for line in lines if line.startswith(("died", "replaced"))]  # Ray tells more
    assert told == ["died", "replaced 1"]
