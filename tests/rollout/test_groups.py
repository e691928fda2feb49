"""Groups come back whole and ordered, in whatever order and however often their members come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly.context.task import Task
from agentfly.errors import ConfigError
from agentfly.rollout.groups import GroupAssembler
from agentfly.rollout.request import GroupRequest
from agentfly.rollout.trajectory import Group, Trajectory


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_every_group_comes_once_and_whole(sizes: list[int], random: object) -> None:
    assembler = GroupAssembler()
    members: list[tuple[str, int]] = []
    for number, size in enumerate(sizes):
        opened = list(assembler.open(GroupRequest(f"g{number}", Task("t"), size), age=number))
        assert [request.age for request in opened] == [number] * size
        assert len({request.seed for request in opened}) == size
        members += [(request.group_id, request.index) for request in opened]
    assert assembler.open_rollouts == sum(sizes)
    arrivals = members + members[: len(members) // 2]
    random.shuffle(arrivals)  # type: ignore[attr-defined]
    groups: list[Group] = []
    for group_id, index in arrivals:
        done = assembler.add(Trajectory(f"{group_id}.{index}", group_id, index, Task("t")))
        groups += [] if done is None else [done]
    assert assembler.open_rollouts == 0
    assert {group.id: [member.index for member in group] for group in groups} == {
        f"g{number}": list(range(size)) for number, size in enumerate(sizes)
    }
    assert len(groups) == len(sizes)


def test_a_group_needs_its_own_id_and_a_member() -> None:
    assembler = GroupAssembler()
    list(assembler.open(GroupRequest("g", Task("t"), 1), age=0))
    with pytest.raises(ConfigError, match="'g' is already running"):
        assembler.open(GroupRequest("g", Task("t"), 1), age=1)
    with pytest.raises(ConfigError, match="size 0"):
        assembler.open(GroupRequest("h", Task("t"), 0), age=1)
