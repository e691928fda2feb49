"""A process that is killed leaves no cgroups: its janitor removes them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import marked

from agentfly.resources.sandbox.bubblewrap.limiting import own_cgroups

pytestmark = pytest.mark.skipif(not own_cgroups().places, reason="no cgroups can be made on this machine")

MAKER = """
import subprocess, sys
from agentfly.resources.sandbox.bubblewrap.limiting import new_group, own_cgroups

places = own_cgroups().places
groups = [new_group(places) for _ in range(2)]
for group in groups:
    group.add(subprocess.Popen(["sleep", "600"]).pid)
print(*{f"{place.folder}" for place in places}, flush=True)
sys.stdin.readline()
for group in groups:
    group.kill()
    while not group.try_remove():
        pass
"""


@pytest.mark.parametrize("ending", ["killed", "in order"])
def test_groups_go_with_their_maker(ending: str) -> None:
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert maker.stdin is not None and maker.stdout is not None
    folders = [Path(folder) for folder in maker.stdout.readline().split()]

    def groups() -> list[Path]:
        return [path for folder in folders for path in folder.glob(f"agentfly-*-{maker.pid}-*")]

    made = groups()
    assert len(made) == 2 * len(folders) > 0
    inside = {int(pid) for group in made for pid in (group / "cgroup.procs").read_text().split()}
    janitors = {pid for pid, line in marked(f"-{maker.pid}-", where="cmdline").items() if "agentfly-janitor" in line}
    assert len(inside) == 2
    assert len(janitors) == 1
    if ending == "killed":
        maker.send_signal(signal.SIGKILL)
    else:
        maker.stdin.write("\n")
        maker.stdin.close()
    assert maker.wait(30) == (-signal.SIGKILL if ending == "killed" else 0)
    assert until(lambda: not groups())
    assert until(lambda: not any(map(_runs, inside | janitors)))


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
