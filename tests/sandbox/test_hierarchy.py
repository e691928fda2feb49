"""Where cgroups are, on machines of every kind."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agentfly.resources.sandbox.bubblewrap.hierarchy import (
    Hierarchy,
    ancestry,
    hierarchies,
    label_of,
    maker_of,
    start_time,
)

V1 = """\
30 25 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/memory rw,relatime shared:5 - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
34 30 0:30 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
"""
V1_OWN = "4:memory:/jobs/one\n3:cpu,cpuacct:/\n2:pids:/jobs\n1:freezer:/\n"
V2 = "29 25 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_version_one() -> None:
    assert hierarchies(V1_OWN, V1) == [
        Hierarchy(1, frozenset({"memory"}), "/sys/fs/cgroup/memory/jobs/one", "/sys/fs/cgroup/memory"),
        Hierarchy(1, frozenset({"cpu"}), "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
        Hierarchy(1, frozenset({"pids"}), "/sys/fs/cgroup/pids/jobs", "/sys/fs/cgroup/pids"),
    ]


def test_version_two_and_the_way_up() -> None:
    (found,) = hierarchies("0::/user.slice/user-1000.slice/app\n", V2)
    assert found == Hierarchy(2, frozenset(), "/sys/fs/cgroup/user.slice/user-1000.slice/app", "/sys/fs/cgroup")
    assert list(ancestry(found)) == [
        "/sys/fs/cgroup/user.slice/user-1000.slice/app",
        "/sys/fs/cgroup/user.slice/user-1000.slice",
        "/sys/fs/cgroup/user.slice",
        "/sys/fs/cgroup",
    ]


def test_both_together() -> None:
    unified = "40 30 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    found = hierarchies(V1_OWN + "0::/here\n", V1 + unified)
    assert [place.version for place in found] == [1, 1, 1, 2]
    assert found[-1].folder == "/sys/fs/cgroup/unified/here"


def test_a_container_sees_its_part_only() -> None:
    inside = "50 45 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    (found,) = hierarchies("4:memory:/docker/abc/below\n", inside)
    assert found.folder == "/sys/fs/cgroup/memory/below"
    assert hierarchies("4:memory:/docker/other\n", inside) == []
    assert hierarchies("0::/../../elsewhere\n", V2) == []


def test_odd_paths_are_read() -> None:
    (found,) = hierarchies("0::/a b\n", V2.replace("/sys/fs/cgroup", "/odd\\040place"))
    assert found.folder == "/odd place/a b"


def test_this_machine_can_be_read() -> None:
    for found in hierarchies(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()):
        assert os.path.isdir(found.root)


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 22), st.integers(0, 1 << 60), st.integers(0, 1 << 30))
def test_a_label_names_its_maker(namespace: int, pid: int, started: int, serial: int) -> None:
    assert maker_of(label_of(namespace, pid, started, serial)) == (namespace, pid, started)


def test_other_names_are_nobodys() -> None:
    for name in ("agentfly", "agentfly-1-2-3", "agentfly-x-2-3-4", "docker-1-2-3-4", "agentfly-1-2-3-4/.."):
        assert maker_of(name) is None


def test_start_times_are_found_behind_any_name() -> None:
    rest = " ".join(["S", *map(str, range(1, 50))])
    assert start_time(f"77 (a) b) (c) {rest}") == 19
    assert start_time(Path("/proc/self/stat").read_text()) > 0
