"""The resource engine against two simple ones, in one run: only the ratios mean anything.

    python benchmarks/resources.py [--quick]

1. The scheduling core alone: events a second, by number of waiters; against a condition variable that wakes
   everybody, which is what an engine in one process easily comes to.
2. The real manager actor, from real client processes: pairs of acquire and release a second, against a naive
   central actor; and the waits against ideal first-in-first-out ones.
3. What a call to a leased resource costs, against a plain Ray call; what 64 idle slots weigh.
4. What the safe-state rule costs, against taking resources in an order agreed by hand; and that rollouts that take
   two and three types in any order finish, with pools of one slot and more.

Rates of one process are by the second of its CPU time, so that others on the machine matter less. The last lines
compare what was reached with what is wanted; what is missed makes the exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import os
import random
import resource
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import ray

from agentfly.resources import Resource, ResourceClient, ResourceSpec, start_manager, stop_manager
from agentfly.resources.core.scheduler import Scheduler
from agentfly.resources.core.types import Action, Grant, PoolLimits, Request, ResetSlot, StartHost

SLOTS = 64


class Bars:
    """What was reached, and what is wanted."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.missed = 0

    def at_least(self, what: str, reached: float, wanted: float) -> None:
        self._add(what, f"{reached:10,.2f} of at least {wanted:9,.2f}", reached >= wanted)

    def at_most(self, what: str, reached: float, wanted: float) -> None:
        self._add(what, f"{reached:10,.2f} of at most  {wanted:9,.2f}", reached <= wanted)

    def _add(self, what: str, text: str, good: bool) -> None:
        self.missed += not good
        self.lines.append(f"  {'ok    ' if good else 'MISSED'} {what:62} {text}")


class Nothing(Resource):
    """A trivial resource."""

    async def noop(self) -> None:
        """Do nothing."""

    async def memory(self) -> float:
        """Most MiB that the host has had resident."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# 1. The core


class CoreLoad:
    """Passes leases on among waiters, in the core alone."""

    def __init__(self, waiters: int, claims: tuple[str, ...] = ()) -> None:
        self.core = Scheduler(1e9)
        self.claims = claims
        self.held: deque[str] = deque()
        self.events = self.number = 0
        for pool in ("p", "q"):
            limits = PoolLimits(pool, slots=16, min_size=SLOTS, max_size=SLOTS)
            self.do(self.core.add_pool(pool, limits, 0.0))
        for _ in range(SLOTS + waiters):
            self.acquire()

    def acquire(self) -> None:
        self.number += 1
        self.events += 1
        request = Request(f"t{self.number}", "c", "p", float(self.number), f"h{self.number}", self.claims)
        self.do(self.core.acquire(request, 0.0))

    def lease(self) -> None:
        self.events += 1
        self.do(self.core.release("c", self.held.popleft(), 0.0))
        self.acquire()

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            if type(action) is Grant:
                self.held.append(action.lease.ticket)
            elif type(action) is ResetSlot:
                self.events += 1
                self.do(self.core.slot_reset(action.pool, action.host, action.slot, True, "", 0.0))
            elif type(action) is StartHost:
                self.do(self.core.host_ready(action.pool, action.host, 0.0))


def core_rates(waiters: int, seconds: float, claims: tuple[str, ...] = ()) -> tuple[float, float]:
    """Events and leases a second."""
    load = CoreLoad(waiters, claims)
    events, leases, started = load.events, 0, time.process_time()
    while (took := time.process_time() - started) < seconds:
        for _ in range(100):
            load.lease()
        leases += 100
    return (load.events - events) / took, leases / took


class WakeEverybody:
    """Leases under one condition variable: whoever wakes first has the slot, all others go back to sleep."""

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.changed = asyncio.Condition()

    async def acquire(self) -> None:
        async with self.changed:
            while not self.free:
                await self.changed.wait()
            self.free -= 1

    async def release(self) -> None:
        async with self.changed:
            self.free += 1
            self.changed.notify_all()


class CoreInProcess:
    """The core behind the same two methods."""

    def __init__(self, slots: int) -> None:
        self.core = Scheduler(1e9)
        self.waiting: dict[str, asyncio.Future[str]] = {}
        self.number = 0
        limits = PoolLimits("p", slots=slots, min_size=slots, max_size=slots, resets=False)
        self.do(self.core.add_pool("p", limits, 0.0))

    async def acquire(self) -> str:
        self.number += 1
        ticket = f"t{self.number}"
        answer = self.waiting[ticket] = asyncio.get_running_loop().create_future()
        self.do(self.core.acquire(Request(ticket, "c", "p"), 0.0))
        granted: str = await answer
        return granted

    def release(self, ticket: str) -> None:
        self.do(self.core.release("c", ticket, 0.0))

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            if type(action) is Grant:
                self.waiting.pop(action.lease.ticket).set_result(action.lease.ticket)
            elif type(action) is StartHost:
                self.do(self.core.host_ready("p", action.host, 0.0))


async def in_process(waiters: int, pairs: int, engine: str) -> tuple[float, float]:
    """Pairs a second, and the 99th percentile of waits, with a hold of 1 ms."""
    waits: list[float] = []
    old, new = WakeEverybody(SLOTS), CoreInProcess(SLOTS)

    async def work() -> None:
        for _ in range(max(1, pairs // waiters)):
            asked = time.perf_counter()
            if engine == "core":
                ticket = await new.acquire()
                waits.append(time.perf_counter() - asked)
                await asyncio.sleep(0.001)
                new.release(ticket)
            else:
                await old.acquire()
                waits.append(time.perf_counter() - asked)
                await asyncio.sleep(0.001)
                await old.release()

    started = time.process_time()
    await asyncio.gather(*(work() for _ in range(waiters)))
    return len(waits) / (time.process_time() - started), quantile(waits, 0.99)


# 2. The manager


class NaiveManager:
    """A deque, a counter and futures in a central actor: a call for each acquire and each release."""

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        if self.free:
            self.free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        await future

    async def release(self) -> None:
        if self.waiting:
            self.waiting.popleft().set_result(None)
        else:
            self.free += 1


class Plain:
    """An actor of no use but to be called."""

    async def noop(self) -> None:
        """Do nothing."""


class Client:
    """A client process with many coroutines."""

    async def connect(self, manager: Any, spec: ResourceSpec[Nothing] | None) -> None:
        self.manager = manager
        self.spec = spec
        self.client = await ResourceClient.connect(manager) if spec is not None else None

    async def run(self, coroutines: int, seconds: float) -> tuple[int, float, list[float]]:
        """Pairs, seconds, waits. All coroutines acquire and release until the time is over."""
        waits: list[float] = []
        end = time.perf_counter() + seconds

        async def work() -> None:
            while (asked := time.perf_counter()) < end:
                if self.client is None or self.spec is None:
                    await self.manager.acquire.remote()
                    waits.append(time.perf_counter() - asked)
                    await self.manager.release.remote()
                else:
                    lease = await self.client.acquire(self.spec)
                    waits.append(time.perf_counter() - asked)
                    lease.release()

        started = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(coroutines)))
        return len(waits), time.perf_counter() - started, waits


async def through_manager(
    manager: Any, spec: ResourceSpec[Nothing] | None, clients: int, waiters: int, seconds: float
) -> tuple[float, list[float]]:
    """Pairs a second of all clients together, and their waits."""
    actors = [ray.remote(Client).options(num_cpus=0, max_concurrency=1000).remote() for _ in range(clients)]
    await asyncio.gather(*(actor.connect.remote(manager, spec) for actor in actors))
    results = await asyncio.gather(*(actor.run.remote(waiters // clients, seconds) for actor in actors))
    for actor in actors:
        ray.kill(actor)
    return sum(pairs / took for pairs, took, _ in results), [wait for _, _, waits in results for wait in waits]


# 4. The safe-state rule


def throughput(order: str, seed: int, rollouts: int = 2000, pools: int = 3, size: int = 16, at_once: int = 48) -> float:
    """Rollouts a second of simulated time, each holding two or three types for a while.

    `claims`: in an order of their own, kept safe by the core. `hand`: in one order that all agree on.
    """
    rng = random.Random(seed)
    names = [f"p{index}" for index in range(pools)]
    core = Scheduler(1e9)
    queue: list[tuple[float, int, Callable[[], None]]] = []
    now, number, done = 0.0, 0, 0
    granted: dict[str, Callable[[], None]] = {}

    def do(actions: list[Action]) -> None:
        for action in actions:
            if type(action) is Grant:
                granted.pop(action.lease.ticket)()
            elif type(action) is StartHost:
                do(core.host_ready(action.pool, action.host, now))

    def later(seconds: float, what: Callable[[], None]) -> None:
        nonlocal number
        number += 1
        heapq.heappush(queue, (now + seconds, number, what))

    def start(index: int) -> None:
        plan = rng.sample(names, rng.choice((2, 3)))
        if order == "hand":
            plan.sort()
        tickets: list[str] = []

        def step() -> None:
            nonlocal done
            if len(tickets) == len(plan):
                for ticket in tickets:
                    do(core.release("c", ticket, now))
                done += 1
                if index + at_once < rollouts:
                    start(index + at_once)
                return
            ticket = f"{index}-{len(tickets)}"
            tickets.append(ticket)
            granted[ticket] = lambda: later(rng.expovariate(1.0), step)
            claims = tuple(plan) if order == "claims" else ()
            pool = plan[len(tickets) - 1]
            do(core.acquire(Request(ticket, "c", pool, float(index), f"r{index}", claims), now))

        step()

    for name in names:
        limits = PoolLimits(name, slots=size, shared=True, min_size=size, max_size=size)
        do(core.add_pool(name, limits, 0.0))
    for index in range(at_once):
        start(index)
    while queue:
        now, _, what = heapq.heappop(queue)
        what()
    assert done == rollouts, f"{rollouts - done} rollouts never finished"
    return done / now


def quantile(values: list[float], q: float) -> float:
    """A quantile."""
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


async def ray_part(seconds: float, bars: Bars) -> None:
    print(f"manager, {SLOTS} slots, pairs of acquire and release a second:")
    naive = ray.remote(NaiveManager).options(num_cpus=0, max_concurrency=100_000).remote(SLOTS)
    base, _ = await through_manager(naive, None, 2, 1000, seconds)
    print(f"  naive actor           1,000 waiters: {base:9,.0f}")
    ray.kill(naive)
    manager = start_manager(f"bench-{os.getpid()}")
    spec = ResourceSpec(Nothing, name="bench", slots=SLOTS, max_size=SLOTS, min_size=SLOTS)
    client = await ResourceClient.connect(manager)
    lease = await client.acquire(spec)  # the pool is up before anything is measured
    rates, worst = {}, 0.0
    for waiters in (100, 1000, 10_000):
        rate, waits = await through_manager(manager, spec, 2, waiters, seconds)
        rates[waiters] = rate
        ideal = waiters / rate
        worst = max(worst, quantile(waits, 0.99) / ideal)
        print(
            f"  ours                {waiters:7,} waiters: {rate:9,.0f}   {rate / base:5.1f} x naive   "
            f"p99 wait {quantile(waits, 0.99):6.3f} s = {quantile(waits, 0.99) / ideal:4.2f} x ideal"
        )
    bars.at_least("pairs through the manager, against the naive actor", rates[1000] / base, 20)
    bars.at_least("of these with 10,000 waiters, against 100", rates[10_000] / rates[100], 0.8)
    bars.at_most("p99 wait against ideal first in, first out; the worst", worst, 1.3)
    plain = ray.remote(Plain).options(num_cpus=0).remote()
    ours, bare = await calls(lease.resource.noop, plain.noop.remote)
    print(f"a call to a leased resource {ours * 1e3:.2f} ms, a plain Ray call {bare * 1e3:.2f} ms")
    bars.at_most("a call to a leased resource, in plain Ray calls", ours / bare, 1.5)
    ray.kill(plain)
    memory = await lease.resource.memory()
    print(f"host with {SLOTS} idle slots: {memory:.0f} MiB, the most it ever had")
    bars.at_most("MiB of a host with 64 idle slots", memory, 150)
    await client.close()
    await stop_manager(manager)


async def calls(first: Callable[[], Any], second: Callable[[], Any], number: int = 500) -> tuple[float, float]:
    """Median seconds of a call to each, taken in turns so that both meet the same machine."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(number):
        for call, times in ((first, took[0]), (second, took[1])):
            started = time.perf_counter()
            await call()
            times.append(time.perf_counter() - started)
    return quantile(took[0], 0.5), quantile(took[1], 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the time")
    parser.add_argument("--no-ray", action="store_true", help="the core only")
    options = parser.parse_args()
    seconds = 1.0 if options.quick else 5.0
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {threading.active_count()} thread")
    bars = Bars()
    print("core alone:")
    for waiters, claims in ((100, ()), (10_000, ()), (1000, ("p", "q"))):
        events, leases = core_rates(waiters, seconds, claims)
        what = f"{waiters:,} waiters" + (", two types claimed" if claims else "")
        print(f"  {what:34}: {events:9,.0f} events/s, {leases:8,.0f} leases/s")
        if waiters == 10_000:
            bars.at_least("events a second of the core alone, 10,000 waiters", events, 100_000)
    print("in one process, hold 1 ms, pairs a second:")
    for waiters in (100, 1000, 2000):
        pairs = 4000 if options.quick else 20_000
        old, old_p99 = asyncio.run(in_process(waiters, pairs, "condition"))
        new, new_p99 = asyncio.run(in_process(waiters, pairs, "core"))
        print(
            f"  {waiters:7,} waiters: wake everybody {old:8,.0f} (p99 {old_p99:.3f} s), "
            f"core {new:8,.0f} (p99 {new_p99:.3f} s): {new / old:4.1f} x"
        )
        bars.at_least(
            f"in one process, {waiters:,} waiters, against waking all", new / old, 4 if waiters == 2000 else 1
        )
    print("two and three types in any order, safe-state rule against an order by hand:")
    for size in (1, 2, 4, 16):
        rollouts, at_once = (500 if options.quick else 2000), 3 * size
        hand, safe = (
            sum(throughput(order, seed, rollouts, size=size, at_once=at_once) for seed in range(5))
            for order in ("hand", "claims")
        )
        print(f"  pools of {size:2}: {safe / hand:.3f} of its throughput, and all finish")
        bars.at_least(f"throughput against an order by hand, pools of {size}", safe / hand, 0.9)
    if not options.no_ray:
        ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False)
        asyncio.run(ray_part(seconds, bars))
        ray.shutdown()
    print("reached:", *bars.lines, sep="\n")
    if bars.missed:
        raise SystemExit(f"{bars.missed} missed; a machine that others use makes the rates worse than they are")


if __name__ == "__main__":
    main()
