"""The scheduler, driven by random arrivals, endings and cancellations."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly.models.engine import Sampling
from agentfly.models.local.prefix_index import PrefixIndex
from agentfly.models.local.scheduler import Limits, Plan, Scheduler
from agentfly.models.local.sequence import Sequence


def sequence(identity: int, prompt: list[int], limit: int = 50, priority: int = 0) -> Sequence:
    return Sequence(identity, "", list(prompt), Sampling(), 0, limit, priority)


class Machine:
    """Carries plans out on rows of token lists, as the cache would hold keys and values."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.index = PrefixIndex()
        self.scheduler = Scheduler(limits, self.index)
        self.rows: list[list[int]] = []
        self.computed_tokens = 0

    def step(self) -> Plan:
        plan = self.scheduler.plan()
        running = self.scheduler.running
        assert [item.row for item in running] == list(range(len(running)))
        assert len(running) <= self.limits.rows
        self.rows += [[] for _ in range(len(running) - len(self.rows))]
        for admission in plan.admissions:
            tokens = [] if admission.source_row is None else self.rows[admission.source_row][: admission.length]
            assert admission.entry is None
            self.rows[admission.sequence.row] = tokens
        for source, target, length in plan.moves:
            self.rows[target] = self.rows[source][:length]
        spare = 0
        for item, chunk in zip(running, plan.chunks, strict=True):
            assert 1 <= chunk <= item.remaining
            spare += chunk - 1
            assert self.rows[item.row][: item.computed] == item.tokens[: item.computed]
            self.rows[item.row] = item.tokens[: item.computed + chunk]
            self.computed_tokens += chunk
        assert spare <= self.limits.prefill_tokens
        self.scheduler.computed(plan)
        return plan


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 1), min_size=1, max_size=12),
            st.integers(0, 2),
            st.integers(1, 6),
            st.integers(0, 4),
        ),
        max_size=14,
    ),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sets(st.integers(0, 13)),
    st.integers(1, 100),
)
def test_everything_runs_to_its_end_on_the_right_tokens(
    requests: list[tuple[list[int], int, int, int]],
    rows: int,
    prefill: int,
    share: int,
    cancelled: set[int],
    room: int,
) -> None:
    machine = Machine(Limits(rows=rows, prefill_tokens=prefill, share_tokens=share, cached_tokens=room))
    scheduler = machine.scheduler
    left = {identity: length for identity, (_, _, length, _) in enumerate(requests)}
    arrivals = sorted(enumerate(requests), key=lambda item: item[1][3])
    for now in range(400):
        while arrivals and arrivals[0][1][3] <= now:
            identity, (prompt, priority, length, _) = arrivals.pop(0)
            scheduler.add(sequence(identity, prompt, len(prompt) + length, priority))
        if now == 3:
            for item in list(scheduler):
                if item.id in cancelled:
                    scheduler.remove(item)
                    del left[item.id]
        if not scheduler:
            continue
        machine.step()
        running = scheduler.running
        if len(running) > 1:
            assert len(running) * max(item.limit for item in running) <= room
        for item in running:
            if item.remaining == 0:
                item.tokens.append(7)
                left[item.id] -= 1
                if left[item.id] == 0:
                    scheduler.remove(item)
                    del left[item.id]
    assert not scheduler
    assert not left


def test_priority_then_age_decides_who_enters() -> None:
    machine = Machine(Limits(rows=2))
    for identity, priority in ((0, 5), (1, 1), (2, 5), (3, 0)):
        machine.scheduler.add(sequence(identity, [identity], priority=priority))
    machine.step()
    assert [item.id for item in machine.scheduler.running] == [3, 1]
    assert [item.id for item in machine.scheduler.waiting] == [0, 2]


def test_a_long_prompt_doesnt_hold_up_those_that_decode() -> None:
    machine = Machine(Limits(prefill_tokens=4))
    machine.scheduler.add(sequence(0, [1]))
    machine.step()
    machine.scheduler.running[0].tokens.append(1)
    machine.scheduler.add(sequence(1, list(range(10, 30))))
    chunks = []
    while machine.scheduler.running[-1].computed < 20:
        chunks.append(machine.step().chunks)
        machine.scheduler.running[0].tokens.append(1)
    assert chunks == [[1, 5]] * 4


def test_a_long_sequence_is_not_overtaken_for_ever() -> None:
    machine = Machine(Limits(rows=8, cached_tokens=40))
    for identity in range(2):
        machine.scheduler.add(sequence(identity, [identity], limit=10))
    machine.step()
    machine.scheduler.add(sequence(2, [2], limit=30))
    machine.scheduler.add(sequence(3, [3], limit=10))
    for item in machine.scheduler.running:
        item.tokens.append(1)
    machine.step()
    assert [item.id for item in machine.scheduler.running] == [0, 1]
    for item in machine.scheduler.running:
        machine.scheduler.remove(item)
    machine.step()
    assert [item.id for item in machine.scheduler.running] == [2]


def test_equal_prompts_are_computed_once() -> None:
    machine = Machine(Limits(share_tokens=4))
    prompt = list(range(20))
    for identity in range(5):
        machine.scheduler.add(sequence(identity, prompt))
    machine.step()
    machine.scheduler.running[0].tokens.append(1)
    machine.step()
    assert machine.computed_tokens == 20 + 1 + 4
