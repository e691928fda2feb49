"""`agentfly pools`: the table, and the command against a job that runs in a cluster of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from agentfly.cli.pools_table import pools_json, pools_table, seconds
from agentfly.errors import ConfigError
from agentfly.resources import PoolStats
from agentfly.resources.jobs import choose_job

STATS = PoolStats(
    key="0123456789",
    name="python",
    min_size=0,
    max_size=64,
    size=32,
    starting=16,
    idle=3,
    leased=12,
    resetting=1,
    waiting=7,
    hosts=2,
    leases=100,
    starts=1,
    start_failures=1,
    resets=90,
    reset_failures=2,
    deaths=3,
    wait_p50=0.0123,
    wait_p99=2.5,
)

JOB = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
import ray
import resources.toys
from ray import cloudpickle
from agentfly.resources import ResourceClient, ResourceSpec
from agentfly.rollout.session import resource_session

cloudpickle.register_pickle_by_value(resources.toys)


async def main():
    async with resource_session("watched") as manager:
        client = await ResourceClient.connect(manager)
        spec = ResourceSpec(resources.toys.Counter, name="toys", max_size=2)
        first, second = await client.acquire(spec), await client.acquire(spec)
        third = asyncio.create_task(client.acquire(spec))
        while (await client.stats())["toys"].waiting < 1:
            await asyncio.sleep(0.01)
        print(ray.get_runtime_context().gcs_address, flush=True)
        await third
        print("granted", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await client.close()

asyncio.run(main())
"""


def drawn(*pools: PoolStats, width: int = 100) -> list[list[str]]:
    """The rows of the table, split into words."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(pools_table("job-1", pools))
    return [line.split() for line in capture.get().splitlines()]


def test_the_table_has_a_row_for_each_pool_by_name() -> None:
    rows = drawn(STATS, replace(STATS, key="x", name="browser", starting=0, waiting=0, size=0, max_size=0))
    assert "pools of job-1".split() in rows
    browser, python = rows[-2:]
    assert python == "python 16 +16/64 3 12 1 7 12.3ms/2.50s 1 6".split()
    assert browser[:2] == ["browser", "0/0"]


def test_the_table_fits_a_terminal() -> None:
    assert "16 +16/64 3 12 1 7 12.3ms/2.50s 1 6".split() == drawn(STATS, width=80)[-1][1:]


def test_pools_of_one_name_are_told_apart() -> None:
    rows = drawn(STATS, replace(STATS, key="fedcba9876"))
    assert [row[0] for row in rows[-2:]] == ["python-012345", "python-fedcba"]


def test_json_has_everything() -> None:
    record = json.loads(pools_json("job-1", [STATS]))
    assert record["job"] == "job-1"
    assert record["pools"][0] | {"pool": "python", "wait_p99": 2.5, "failures": 6, "max_size": 64} == record["pools"][0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0s"), (0.00123, "1.23ms"), (0.9999, "1.00s"), (1.5, "1.50s"), (119.6, "2:00min")],
)
def test_times_are_for_people(value: float, text: str) -> None:
    assert seconds(value) == text


def test_the_only_job_is_meant_or_the_one_of_the_name() -> None:
    assert choose_job(["a-0123abcd"], None) == "a-0123abcd"
    assert choose_job(["a-0123abcd", "b-0123abcd"], "b") == "b-0123abcd"
    assert choose_job(["a", "a-0123abcd"], "a") == "a"


@pytest.mark.parametrize(
    ("jobs", "wanted", "message"),
    [
        ([], None, "no job runs"),
        (["a-0123abcd", "b"], None, "several jobs run, choose one with --job: a-0123abcd, b"),
        (["a-0123abcd", "b"], "c", "no job 'c'; the jobs are: a-0123abcd, b"),
        (["a-0123abcd", "a-99999999"], "a", "several jobs run.*: a-0123abcd, a-99999999"),
    ],
)
def test_a_job_that_is_not_clear_is_one_line(jobs: list[str], wanted: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_job(jobs, wanted)


async def start(*arguments: str) -> asyncio.subprocess.Process:
    """`agentfly pools` with arguments."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentfly.cli.main", "pools", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "120"},
    )


async def agentfly(*arguments: str) -> tuple[int, str]:
    """Exit code and output of `agentfly pools`."""
    command = await start(*arguments)
    output, _ = await asyncio.wait_for(command.communicate(), 120)
    assert command.returncode is not None
    return command.returncode, output.decode()


async def test_no_cluster_is_one_line() -> None:
    code, told = await agentfly("--once", "--address", "127.0.0.1:1")
    assert code == 2
    assert told.startswith("agentfly: --address: no Ray cluster answers at 127.0.0.1:1")
    assert len(told.splitlines()) == 1


@pytest.mark.slow
async def test_a_running_job_is_watched_and_resized(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    job = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", JOB, tests), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    )
    assert job.stdout is not None and job.stdin is not None
    try:
        address = (await asyncio.wait_for(job.stdout.readline(), 120)).decode().split()[-1]
        where = ("--address", address)

        code, told = await agentfly("--once", "--json", *where)
        assert code == 0, told
        record = json.loads(told)
        assert record["job"].startswith("watched-")
        (pool,) = record["pools"]
        assert pool | {"pool": "toys", "size": 2, "leased": 2, "waiting": 1, "starts": 2, "failures": 0} == pool

        code, told = await agentfly("--once", *where, "--job", "other")
        assert (code, told) == (2, f"agentfly: there is no job 'other'; the jobs are: {record['job']}\n")
        code, told = await agentfly(*where, "resize", "tools", "3")
        assert (code, told) == (2, "agentfly: there is no pool 'tools'; the pools are: toys\n")

        code, told = await agentfly("resize", "toys", "3", *where, "--job", "watched")
        assert code == 0, told
        assert "toys" in told
        assert (await asyncio.wait_for(job.stdout.readline(), 60)).strip() == b"granted", "the third had its turn"

        code, told = await agentfly("drain", "toys", *where)
        assert code == 0, told
        assert "/0" in told

        watching = await start("--json", *where, "--interval", "0.2")
        assert watching.stdout is not None
        assert b'"max_size": 0' in await asyncio.wait_for(watching.stdout.readline(), 60)
        job.stdin.write(b"\n")
        told = (await asyncio.wait_for(watching.communicate(), 60))[0].decode()
        assert watching.returncode == 0, told
        assert all(json.loads(line)["job"] == record["job"] for line in told.splitlines())
    finally:
        job.stdin.close()
        try:
            await asyncio.wait_for(job.wait(), 60)
        finally:
            if job.returncode is None:
                job.kill()
                await job.wait()
