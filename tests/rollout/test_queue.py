"""The work queue: nothing is lost, nothing is handed to two workers, whatever dies."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from agentfly.context.task import Task
from agentfly.rollout.queue import WorkQueue
from agentfly.rollout.request import GroupRequest, RolloutRequest

MAX_ATTEMPTS = 3
WORKERS = st.sampled_from(["a", "b", "c"])


def requests(group: str, size: int) -> list[RolloutRequest]:
    return list(GroupRequest(group, Task(group), size).rollouts())


class QueueMachine(RuleBasedStateMachine):
    """Every request is in exactly one place: waiting, with one worker, delivered, or given up."""

    groups = Bundle("groups")

    def __init__(self) -> None:
        super().__init__()
        self.queue = WorkQueue(MAX_ATTEMPTS)
        self.waiting: list[str] = []
        self.held: dict[str, list[str]] = {"a": [], "b": [], "c": []}
        self.attempts: dict[str, int] = {}
        self.ended: set[str] = set()

    @rule(size=st.integers(1, 5))
    def add(self, size: int) -> None:
        new = requests(f"g{len(self.attempts)}", size)
        self.queue.add(new)
        self.waiting += [request.id for request in new]
        self.attempts.update((request.id, 0) for request in new)

    @rule(worker=WORKERS, most=st.integers(0, 4))
    def take(self, worker: str, most: int) -> None:
        taken = self.queue.take(worker, most)
        assert [request.id for request in taken] == self.waiting[:most]
        assert [request.attempt for request in taken] == [self.attempts[request.id] for request in taken]
        del self.waiting[:most]
        self.held[worker] += [request.id for request in taken]

    @rule(worker=WORKERS, data=st.data())
    def deliver(self, worker: str, data: st.DataObject) -> None:
        if self.held[worker]:
            one = data.draw(st.sampled_from(self.held[worker]))
            self.queue.delivered(worker, [one, "never heard of"])
            self.held[worker].remove(one)
            self.ended.add(one)

    @rule(worker=WORKERS)
    def lose(self, worker: str) -> None:
        given_up = {request.id for request in self.queue.lost(worker)}
        again = []
        for rollout in self.held[worker]:
            self.attempts[rollout] += 1
            (again.append if self.attempts[rollout] < MAX_ATTEMPTS else self.ended.add)(rollout)
        assert given_up == set(self.held[worker]) - set(again)
        self.waiting = again + self.waiting
        self.held[worker] = []

    @invariant()
    def every_request_is_somewhere(self) -> None:
        assert self.queue.waiting == len(self.waiting)
        places = [*self.waiting, *(rollout for held in self.held.values() for rollout in held), *self.ended]
        assert sorted(places) == sorted(self.attempts)


TestQueue = QueueMachine.TestCase
