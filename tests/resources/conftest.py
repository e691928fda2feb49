"""A resource manager for each test that asks, and clients of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
import resources.toys
from ray import cloudpickle

from agentfly.resources import ResourceClient, start_manager, stop_manager

# Ray's workers don't have the tests' folder on their path.
cloudpickle.register_pickle_by_value(resources.toys)
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def manager(ray_cluster: None) -> Iterator[Any]:
    """A job's manager, for the tests of a module; everything of it is gone after them."""
    handle = start_manager(f"test-{uuid4().hex[:8]}", client_ttl=3.0)
    yield handle
    asyncio.run(stop_manager(handle))


@pytest_asyncio.fixture
async def client(manager: Any) -> AsyncIterator[ResourceClient]:
    """This process's client of the manager."""
    connected = await ResourceClient.connect(manager)
    yield connected
    await connected.close()


@pytest.fixture
def kill() -> Callable[[int], None]:
    """Kills a process of ours the hard way and waits until it is gone."""

    def kill_9(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(pid)), f"{pid} is still alive"

    return kill_9


async def pid_of(actor: Any) -> int:
    """The process of an actor, whatever else runs on this machine."""
    pid: int = await actor.__ray_call__.remote(_own_pid)
    return pid


def _own_pid(_: Any) -> int:
    return os.getpid()


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie doesn't)."""
    with suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Look until a condition of the operating system holds; false when it doesn't come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
