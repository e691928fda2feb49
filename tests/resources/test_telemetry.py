"""What the manager tells: the event log, and metrics as Prometheus gets them."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import ray
from prometheus_client.parser import text_string_to_metric_families
from resources.toys import Counter

from agentfly.resources import ResourceClient, ResourceSpec, start_manager, stop_manager
from agentfly.resources.core.types import Lease, LeaseEnded, PoolLimits
from agentfly.resources.event_log import EventLog


def test_a_line_for_everything(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "events.jsonl"
    log = EventLog(str(path), clock=lambda: 5.0)
    limits = PoolLimits("box", slots=16)
    log.pool_made("key", limits)
    log.host_started("box", "h", 16, 1.5)
    log.lease_ended("box", LeaseEnded(Lease("t", "c", "key", "h", 3, 9), "r.0", 0.25, 2.0, "released"))
    log.slot_reset("box", "h", 3, 0.125, renewed=False, ok=True)
    log.close()
    log.host_started("box", "late", 16, 1.5)
    pool, *lines = records(path)
    assert (pool["event"], pool["key"], PoolLimits(**pool["limits"])) == ("pool", "key", limits)
    common = {"time": 5.0, "pool": "box", "host": "h"}
    lease = {"slot": 3, "epoch": 9, "client": "c", "holder": "r.0", "waited": 0.25, "held": 2.0, "how": "released"}
    assert lines == [
        {"event": "start", "slots": 16, "seconds": 1.5} | common,
        {"event": "lease"} | lease | common,
        {"event": "reset", "slot": 3, "renewed": False, "ok": True, "seconds": 0.125} | common,
    ]


async def test_leases_are_logged_and_metrics_can_be_scraped(ray_cluster: None, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    manager = start_manager("test-telemetry", event_log=str(path))
    client = await ResourceClient.connect(manager)
    spec = ResourceSpec(Counter, name="told", max_size=2)
    lease = await client.acquire(spec, holder="r.0")
    held = await client.acquire(spec, holder="r.1")
    third = asyncio.create_task(client.acquire(spec))
    while (await client.stats())["told"].waiting < 1:
        await asyncio.sleep(0.01)
    lease.release()
    again = await third
    fourth = asyncio.create_task(client.acquire(spec))
    while (await client.stats())["told"].waiting < 1:
        await asyncio.sleep(0.01)
    truth = (await client.stats())["told"]
    assert (truth.size, truth.leased, truth.waiting, truth.leases, truth.resets) == (2, 2, 1, 3, 1)

    wanted = {
        "size": 2,
        "starting": 0,
        "idle": 0,
        "leased": 2,
        "resetting": 0,
        "waiting": 1,
        "hosts": 2,
        "leases_total": 3,
        "starts_total": 2,
        "resets_total": 1,
        "wait_p50": truth.wait_p50,
        "wait_p99": truth.wait_p99,
    }
    found: dict[str, float] = {}
    for _ in range(100):
        found = await asyncio.to_thread(scrape, ray.nodes()[0]["MetricsExportPort"], "told")
        if found == wanted:
            break
        await asyncio.sleep(0.3)
    assert found == wanted

    held.release()
    (await fourth).release()
    again.release()
    await client.close()
    await stop_manager(manager)
    events = records(path)
    assert [event["event"] for event in events].count("start") == 2
    leases = [event for event in events if event["event"] == "lease"]
    assert sorted(event["holder"] for event in leases) == ["", "", "r.0", "r.1"]
    assert {event["how"] for event in leases} == {"released"}
    assert all(event["held"] > 0 for event in leases)
    waits = sorted(event["waited"] for event in leases)
    assert waits[-1] > 0
    assert all(event["seconds"] > 0 for event in events if event["event"] in ("start", "reset"))


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a log."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def scrape(port: int, pool: str) -> dict[str, float]:
    """What Prometheus would get of a pool from the node: values by the metric's name behind `agentfly_pool_`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    begin = "ray_agentfly_pool_"
    samples = [sample for family in families for sample in family.samples]
    mine = [sample for sample in samples if sample.name.startswith(begin) and sample.labels.get("pool") == pool]
    assert {sample.labels["job"] for sample in mine} <= {"test-telemetry"}
    return {sample.name.removeprefix(begin): sample.value for sample in mine}
