"""The pools in Ray's dashboard and Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from ray.util.metrics import Counter, Gauge

from agentfly.resources.core.types import PoolStats, pool_labels

_GAUGES = {
    "size": "Slots of all hosts",
    "starting": "Slots of hosts that start",
    "idle": "Slots that could be lent now",
    "leased": "Slots that are lent",
    "resetting": "Slots being made clean",
    "waiting": "Requests in the queue",
    "hosts": "Host processes",
    "wait_p50": "Median seconds that recent leases were waited for",
    "wait_p99": "99th percentile of the seconds that recent leases were waited for",
}
_COUNTERS = {
    "leases": "Leases granted",
    "starts": "Hosts started",
    "start_failures": "Hosts that could not be started",
    "resets": "Slots made clean",
    "reset_failures": "Slots that could not be made clean",
    "deaths": "Hosts that died",
}


class PoolMetrics:
    """Publishes what `PoolStats` says, as `agentfly_pool_<what>` with the tags job and pool.

    Args:
        job: the tag's value.
    """

    def __init__(self, job: str) -> None:
        tags = ("job", "pool")
        self._job = job
        self._gauges = {name: Gauge(f"agentfly_pool_{name}", text, tags) for name, text in _GAUGES.items()}
        self._counters = {name: Counter(f"agentfly_pool_{name}", text, tags) for name, text in _COUNTERS.items()}
        self._last: dict[tuple[str, str], int] = {}

    def publish(self, pools: Iterable[PoolStats]) -> None:
        """Tell the present state; pools of one name are told apart by the begin of their keys."""
        pools = list(pools)
        for stats, label in zip(pools, pool_labels(pools), strict=True):
            tags = {"job": self._job, "pool": label}
            for name, gauge in self._gauges.items():
                gauge.set(getattr(stats, name), tags)
            for name, counter in self._counters.items():
                total = getattr(stats, name)
                grown = total - self._last.get((stats.key, name), 0)
                self._last[stats.key, name] = total
                if grown > 0:
                    counter.inc(grown, tags)
