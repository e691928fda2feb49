"""What the manager tells: the event log, and metrics as Prometheus gets them."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

import ray
from resources.toys import Counter

from agentfly.resources import ResourceClient, ResourceSpec, start_manager, stop_manager
from agentfly.resources.core.types import Lease, LeaseEnded
from agentfly.resources.event_log import EventLog


def test_a_line_for_every_lease(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "leases.jsonl"
    log = EventLog(str(path), clock=lambda: 5.0)
    log.lease_ended("box", LeaseEnded(Lease("t", "c", "key", "h", 3, 9), "r.0", 0.25, 2.0, "released"))
    log.close()
    log.lease_ended("box", LeaseEnded(Lease("t", "c", "key", "h", 3, 9), "r.0", 0.25, 2.0, "released"))
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "time": 5.0,
            "pool": "box",
            "host": "h",
            "slot": 3,
            "epoch": 9,
            "client": "c",
            "holder": "r.0",
            "waited": 0.25,
            "held": 2.0,
            "how": "released",
        }
    ]


async def test_leases_are_logged_and_metrics_can_be_scraped(ray_cluster: None, tmp_path: Path) -> None:
    path = tmp_path / "leases.jsonl"
    manager = start_manager("test-telemetry", event_log=str(path))
    client = await ResourceClient.connect(manager)
    spec = ResourceSpec(Counter, name="told", max_size=2)
    lease = await client.acquire(spec, holder="r.0")
    held = await client.acquire(spec, holder="r.1")
    waiting = asyncio.create_task(client.acquire(spec))
    lease.release()
    (await waiting).release()
    port = ray.nodes()[0]["MetricsExportPort"]
    wanted = [
        'agentfly_pool_leased{.*pool="told".*} 1.0',
        'agentfly_pool_size{.*pool="told".*} 2.0',
        'agentfly_pool_leases_total{.*pool="told".*} 3.0',
    ]
    missing = wanted
    for _ in range(100):
        text = await asyncio.to_thread(scrape, port)
        missing = [pattern for pattern in wanted if not any(matches(pattern, line) for line in text.splitlines())]
        if not missing:
            break
        await asyncio.sleep(0.3)
    assert not missing
    held.release()
    await client.close()
    await stop_manager(manager)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(record["holder"] for record in records) == ["", "r.0", "r.1"]
    assert {record["how"] for record in records} == {"released"}
    assert all(record["held"] >= 0 for record in records)


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def matches(pattern: str, line: str) -> bool:
    name, _, rest = pattern.partition("{")
    labels, _, value = rest.rpartition("}")
    wanted = labels.strip(".*")
    return name + "{" in line and wanted in line and line.endswith(value.strip())
