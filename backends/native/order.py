"""The order of tasks: an endless sequence of shuffled passes that follows from a seed alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentfly.context.task import Task
from agentfly.errors import ConfigError
from agentfly.rollout.seeds import derive_seed


class TaskOrder:
    """Every task once in each pass, each pass shuffled anew.

    Args:
        tasks: the dataset; at least one.
        seed: of the order.
    """

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        if not tasks:
            raise ConfigError("there are no tasks to train on")
        self._tasks = tasks
        self._seed = seed
        self._shuffled: tuple[int, list[int]] = (-1, [])

    def take(self, position: int, count: int) -> list[Task]:
        """Tasks from a position of the sequence on."""
        return [self[place] for place in range(position, position + count)]

    def __getitem__(self, position: int) -> Task:
        epoch, index = divmod(position, len(self._tasks))
        if self._shuffled[0] != epoch:
            indices = list(range(len(self._tasks)))
            random.Random(derive_seed(self._seed, "epoch", epoch)).shuffle(indices)
            self._shuffled = (epoch, indices)
        return self._tasks[self._shuffled[1][index]]
