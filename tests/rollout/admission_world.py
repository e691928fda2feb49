"""Rollouts of a model and a pool in simulated time, admitted or not."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from agentfly.rollout.admission import Admission, PoolView

_LOOK = 0.25


@dataclass(frozen=True)
class Load:
    """What is simulated.

    Attributes:
        slots: of the pool.
        grow: seconds between two slots that the pool gains while somebody waits; 0 has all at once.
        think: mean seconds before each tool call.
        use: mean seconds of a tool call.
        calls: of a rollout.
        keeps: it holds its slot from the first call to its end, else for each call.
        uses: share of rollouts that call at all.
    """

    slots: int
    think: float = 1.0
    use: float = 1.0
    calls: int = 1
    keeps: bool = True
    uses: float = 1.0
    grow: float = 0.0


class World:
    """Runs rollouts, at most `concurrency` at once; `admission` None lets all in."""

    def __init__(self, load: Load, rollouts: int, concurrency: int, admission: Admission | None, seed: int = 0) -> None:
        self.load = load
        self.left = rollouts
        self.concurrency = concurrency
        self.admission = admission
        self.rng = random.Random(seed)
        self.size = 0 if load.grow else load.slots
        self.leased = self.running = self.count = 0
        self.queue: deque[Callable[[], None]] = deque()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.now = 0.0
        self.times: list[float] = []
        self.rate = 0.0

    def run(self) -> None:
        """To the end; `rate` is rollouts a second then, `times` what each took from its first token."""
        total = self.left
        self.look()
        if self.load.grow:
            self.later(self.load.grow, self.grow)
        while len(self.times) < total:
            self.now, _, event = heapq.heappop(self.events)
            event()
            assert self.count < 1_000_000, "it never ends"
        self.rate = total / self.now

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, event))

    def look(self) -> None:
        """What the work queue does on its timer."""
        if self.admission is not None:
            view = PoolView(self.leased, self.size, len(self.queue), self.load.slots)
            self.admission.observe(self.running, {"p": view}, self.now)
        self.admit()
        self.later(_LOOK, self.look)

    def grow(self) -> None:
        if self.queue and self.size < self.load.slots:
            self.size += 1
            self.serve()
        self.later(self.load.grow, self.grow)

    def admit(self) -> None:
        room = None if self.admission is None else self.admission.room(self.running)
        free = self.concurrency - self.running
        for _ in range(min(self.left, free if room is None else min(room, free))):
            self.left -= 1
            self.running += 1
            self.begin()

    def begin(self) -> None:
        """One rollout: think, call, think, call ..., end. Its clock starts with its first token."""
        started = self.now
        calls = self.load.calls if self.rng.random() < self.load.uses else 0
        has_slot = False

        def think() -> None:
            self.later(self.rng.expovariate(1 / self.load.think), ask if calls else end)

        def ask() -> None:
            if has_slot:
                work()
                return
            self.queue.append(take)
            self.serve()

        def take() -> None:
            nonlocal has_slot
            has_slot = True
            self.leased += 1
            work()

        def work() -> None:
            nonlocal calls
            calls -= 1
            self.later(self.rng.expovariate(1 / self.load.use), worked)

        def worked() -> None:
            nonlocal has_slot
            if not self.load.keeps or not calls:
                give()
            think()

        def give() -> None:
            nonlocal has_slot
            has_slot = False
            self.leased -= 1
            self.serve()

        def end() -> None:
            if has_slot:
                give()
            self.times.append(self.now - started)
            if self.admission is not None:
                self.admission.ended(1, self.running)
            self.running -= 1
            self.admit()

        think()

    def serve(self) -> None:
        while self.queue and self.leased < self.size:
            self.queue.popleft()()
