from __future__ import annotations

import pytest
from agentfly.backends.native.order import TaskOrder
from hypothesis import given
from hypothesis import strategies as st

from agentfly.context.task import Task
from agentfly.errors import ConfigError


def order(count: int, seed: int = 0) -> TaskOrder:
    return TaskOrder([Task(str(index)) for index in range(count)], seed)


@given(count=st.integers(1, 20), seed=st.integers(0, 5), epoch=st.integers(0, 4))
def test_each_pass_has_every_task_once(count: int, seed: int, epoch: int) -> None:
    ids = [task.id for task in order(count, seed).take(epoch * count, count)]
    assert sorted(ids) == sorted(map(str, range(count)))


@given(split=st.integers(0, 30))
def test_going_on_gives_the_tasks_that_would_have_come(split: int) -> None:
    whole = order(7).take(0, 30)
    assert order(7).take(0, split) + order(7).take(split, 30 - split) == whole


def test_passes_and_seeds_differ() -> None:
    tasks = order(50).take(0, 100)
    assert tasks[:50] != tasks[50:]
    assert tasks[:50] != order(50, seed=1).take(0, 50)


def test_no_tasks_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no tasks"):
        order(0)
