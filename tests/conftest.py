"""What all tests share: one private Ray cluster, and the proof that nothing is left running after them."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator

# Before ray is imported anywhere: no token file in the user's home, and never another cluster.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_raylet_start_wait_time_s"] = "120"  # noqa: SIM112 - a busy machine takes its time
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "120"
os.environ.pop("RAY_ADDRESS", None)

import pytest
import ray
from processes import left_after


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """A failure's report parses sources; one that a garbage collection writes meanwhile would spoil that.

    CPython 3.11 counts the depth of nested `ast.parse` wrongly, and the traceback of a task that nobody awaited is
    made of the same.
    """
    if call.excinfo is not None:
        gc.collect()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """Ray on this machine, for the whole session; it believes in eight CPUs, whatever there are."""
    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """After all tests no process that they started is alive."""
    mark = f"agentfly-tests-{os.getpid()}-{time.time_ns()}"
    os.environ["AGENTFLY_TEST_MARK"] = mark
    yield
    ray.shutdown()
    left = left_after(mark, 15)
    assert not left, f"still running after the tests: {left}"
