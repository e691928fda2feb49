"""What a pool waits for is demand that the autoscaler sees. In a process of its own: it needs a cluster that grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from resources.clusters import run_script

pytestmark = pytest.mark.slow

SCRIPT = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import ray
import resources.toys
from ray import cloudpickle
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.cluster_utils import Cluster
from agentfly.resources import ResourceClient, ResourceSpec, start_manager, stop_manager

cloudpickle.register_pickle_by_value(resources.toys)


def demand():
    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    groups = status.resource_demands.ray_task_actor_demand
    return sorted([bundle.count, dict(bundle.bundle)] for group in groups for bundle in group.bundles_by_count)


async def until(wanted):
    for _ in range(300):
        if (found := await asyncio.to_thread(demand)) == wanted:
            break
        await asyncio.sleep(0.1)
    print(json.dumps(found), flush=True)


async def main():
    manager = start_manager("test-demand")
    client = await ResourceClient.connect(manager)
    spec = ResourceSpec(resources.toys.Counter, slots=2, max_size=6, num_cpus=0.5, resources={"site": 1})
    await until([])
    waiting = [asyncio.create_task(client.acquire(spec)) for _ in range(3)]
    await until([[2, {"CPU": 0.5, "site": 1.0}]])
    cluster.add_node(num_cpus=1, resources={"site": 2})  # as an autoscaler would
    leases = await asyncio.wait_for(asyncio.gather(*waiting), 120)
    await until([])
    print(json.dumps(sorted([await lease.resource.add() for lease in leases])))
    await client.close()
    await stop_manager(manager)


cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
ray.init(address=cluster.address, log_to_driver=False)
try:
    asyncio.run(main())
finally:
    ray.shutdown()
    cluster.shutdown()
"""


async def test_hosts_without_a_place_are_pending_demand(tmp_path: Path) -> None:
    lines = await run_script(SCRIPT, tmp_path, 240)
    before, waiting, after, used = map(json.loads, lines[-4:])
    assert before == []
    assert waiting == [[2, {"CPU": 0.5, "site": 1.0}]], "two hosts of two slots for three who wait"
    assert after == []
    assert used == [1, 1, 1]
