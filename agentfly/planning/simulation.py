"""Discrete-event simulation: the real scheduling core under a clock of its own."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from agentfly.errors import AgentFlyError
from agentfly.planning.model import Give, Outcome, PoolModel, PoolUse, Program, Take, Workload
from agentfly.resources.core.scheduler import Scheduler
from agentfly.resources.core.types import Action, Grant, LeaseEnded, Reject, Request, ResetSlot, StartHost, StopHost

_CLIENT = "client"
_TICK = 0.5
_TICKS_A_ROLLOUT = 50  # where rollouts are long, looking more often changes nothing
_EDGE = 0.1  # of the rollouts, left aside at both ends when the rate is measured

_Event: TypeAlias = Callable[[], None]


class _Rollout:
    __slots__ = ("began", "leases", "name", "place", "priority", "program", "waited")

    def __init__(self, number: int, program: Program, began: float) -> None:
        self.name = f"r{number}"
        self.priority = float(number)
        self.program = program
        self.began = began
        self.place = 0
        self.waited = 0.0
        self.leases: dict[str, str] = {}  # pool -> ticket


class Simulation:
    """One run of a workload on a set of pools. Nothing fails in it.

    Args:
        pools: by key, as the programs name them.
        workload: the rollouts.
        seed: of all that is drawn.
    """

    def __init__(self, pools: Mapping[str, PoolModel], workload: Workload, *, seed: int = 0) -> None:
        self._pools = pools
        self._workload = workload
        self._rng = random.Random(seed)
        self._core = Scheduler(float("inf"))
        self._now = 0.0
        self._agenda: list[tuple[float, int, _Event]] = []
        self._order = itertools.count()
        self._ready: deque[_Rollout] = deque()
        self._blocked: dict[str, _Rollout] = {}  # ticket -> who waits
        self._hosts: dict[str, tuple[str, int, float]] = {}  # pool, slots, since when
        self._sizes = dict.fromkeys(pools, 0)
        self._use = {key: PoolUse() for key in pools}
        self._started = 0
        self._running = 0
        self._steps_learned = 0
        self._ends: list[float] = []
        self._latency = 0.0
        self._waited = 0.0
        self._events = 0

    def run(self) -> Outcome:
        """Play all rollouts.

        Raises:
            AgentFlyError: the pools can't serve them: a queue overflows, or somebody would wait for ever.
        """
        for key, pool in self._pools.items():
            # Resources don't fall ill here.
            self._do(self._core.add_pool(key, replace(pool.limits, health_interval=None), self._now))
        self._start_rollouts()
        self._at(_TICK, self._tick)
        while self._ready or len(self._ends) < self._workload.rollouts:
            while self._ready:
                self._continue(self._ready.popleft())
            if len(self._ends) == self._workload.rollouts:
                break
            self._now, _, event = heapq.heappop(self._agenda)
            event()
        return self._outcome()

    # Rollouts

    def _start_rollouts(self) -> None:
        work = self._workload
        while self._started < self._may_start() and self._running < work.concurrent:
            self._ready.append(_Rollout(self._started, work.programs(self._rng), self._now))
            self._started += 1
            self._running += 1

    def _may_start(self) -> int:
        """How many rollouts may have begun: a step begins when the one before it has been learned from."""
        work = self._workload
        if work.per_step is None:
            return work.rollouts
        return min(work.rollouts, (self._steps_learned + 1) * work.per_step)

    def _continue(self, rollout: _Rollout) -> None:
        program = rollout.program
        while rollout.place < len(program):
            step = program[rollout.place]
            rollout.place += 1
            if isinstance(step, Take):
                if step.pool not in rollout.leases:
                    self._acquire(rollout, step.pool)
                    return
            elif isinstance(step, Give):
                if (ticket := rollout.leases.pop(step.pool, None)) is not None:
                    self._release(ticket)
            elif step > 0:
                self._at(step, lambda: self._ready.append(rollout))
                return
        self._end(rollout)

    def _acquire(self, rollout: _Rollout, pool: str) -> None:
        ticket = rollout.leases[pool] = f"{rollout.name}:{pool}:{rollout.place}"
        self._blocked[ticket] = rollout
        self._events += 1
        request = Request(ticket, _CLIENT, pool, rollout.priority, rollout.name, self._workload.claims)
        self._do(self._core.acquire(request, self._now))

    def _release(self, ticket: str) -> None:
        self._events += 1
        self._do(self._core.release(_CLIENT, ticket, self._now))

    def _end(self, rollout: _Rollout) -> None:
        for ticket in rollout.leases.values():
            self._release(ticket)
        self._running -= 1
        self._ends.append(self._now)
        self._latency += self._now - rollout.began
        self._waited += rollout.waited
        per_step = self._workload.per_step
        if per_step is not None and len(self._ends) % per_step == 0:
            self._at(self._workload.between_steps.draw(self._rng), self._learned)
        self._start_rollouts()

    def _learned(self) -> None:
        self._steps_learned += 1
        self._start_rollouts()

    # Hosts and time

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Grant):
                rollout = self._blocked.pop(action.lease.ticket)
                rollout.waited += action.waited
                self._use[action.lease.pool].waits.append(action.waited)
                self._ready.append(rollout)
            elif isinstance(action, LeaseEnded):
                self._use[action.lease.pool].held += action.held
            elif isinstance(action, ResetSlot):
                self._reset(action)
            elif isinstance(action, StartHost):
                self._start_host(action)
            elif isinstance(action, StopHost):
                self._stop_host(action.host)
            elif isinstance(action, Reject):
                raise AgentFlyError(f"the simulation came to an end: {action.message}")

    def _reset(self, reset: ResetSlot) -> None:
        model, use = self._pools[reset.pool], self._use[reset.pool]
        seconds = (model.start if reset.renew else model.reset).draw(self._rng)
        use.cleaned += seconds

        def done() -> None:
            self._events += 1
            self._do(self._core.slot_reset(reset.pool, reset.host, reset.slot, True, "", self._now))

        self._at(seconds, done)

    def _start_host(self, start: StartHost) -> None:
        use = self._use[start.pool]
        use.starts += 1
        self._hosts[start.host] = (start.pool, start.slots, self._now)
        self._sizes[start.pool] += start.slots
        use.peak = max(use.peak, self._sizes[start.pool])

        def up() -> None:
            self._events += 1
            self._do(self._core.host_ready(start.pool, start.host, self._now))

        self._at(start.delay + self._pools[start.pool].start.draw(self._rng), up)

    def _stop_host(self, host: str) -> None:
        pool, slots, since = self._hosts.pop(host)
        self._sizes[pool] -= slots
        self._use[pool].slot_seconds += slots * (self._now - since)

    def _tick(self) -> None:
        self._events += 1
        self._do(self._core.tick(self._now))
        if self._ready or self._agenda:
            mean = self._latency / len(self._ends) if self._ends else 0.0
            self._at(max(_TICK, mean / _TICKS_A_ROLLOUT), self._tick)
        else:
            waiting = ", ".join(sorted({ticket.split(":")[1] for ticket in self._blocked}))
            raise AgentFlyError(f"rollouts would wait for ever for: {waiting}")

    def _at(self, delay: float, event: _Event) -> None:
        heapq.heappush(self._agenda, (self._now + delay, next(self._order), event))

    def _outcome(self) -> Outcome:
        for host in list(self._hosts):
            self._stop_host(host)
        count = self._workload.rollouts
        return Outcome(
            rollouts=count,
            seconds=self._now,
            rate=self._rate(),
            latency=self._latency / count,
            working=(self._latency - self._waited) / count,
            events=self._events,
            pools=self._use,
        )

    def _rate(self) -> float:
        ends, edge = self._ends, int(len(self._ends) * _EDGE)
        if self._workload.per_step is not None or not edge:
            return len(ends) / self._now if self._now else float("inf")
        spent = ends[-1 - edge] - ends[edge]
        return (len(ends) - 1 - 2 * edge) / spent if spent else float("inf")
