"""What all tests share: one private Ray cluster, and the proof that nothing is left running after them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

# Before ray is imported anywhere: no token file in the user's home, and never another cluster.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.pop("RAY_ADDRESS", None)

import pytest  # noqa: E402
import ray  # noqa: E402


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
    deadline = time.monotonic() + 15
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left, f"still running after the tests: {left}"


def _marked(mark: str) -> list[str]:
    """Command lines of the processes that inherited the mark, this one and its threads aside."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as environ:
                if mark.encode() not in environ.read():
                    continue
            with open(f"/proc/{entry.name}/cmdline", "rb") as cmdline:
                command = cmdline.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if command:
            found.append(f"{entry.name}: {command}")
    return found
