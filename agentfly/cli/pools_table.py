"""The pools of a job as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from agentfly.resources import PoolStats
from agentfly.resources.core.types import pool_labels

_COLUMNS = ("size", "idle", "leased", "resetting", "waiting", "p50/p99 wait", "starts", "failures")


def pools_table(job: str, pools: Sequence[PoolStats]) -> Table:
    """One row for each pool, by label. Size is `ready +starting/most`."""
    table = Table("pool", title=f"pools of {job}", box=None, padding=(0, 1, 0, 0))
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for label, stats in _by_label(pools):
        starting = f" +{stats.starting}" if stats.starting else ""
        waiting = f"[yellow]{stats.waiting}[/]" if stats.waiting else "0"
        failures = f"[red]{stats.failures}[/]" if stats.failures else "0"
        table.add_row(
            label,
            f"{stats.size - stats.starting}{starting}/{stats.max_size}",
            str(stats.idle),
            str(stats.leased),
            str(stats.resetting),
            waiting,
            f"{seconds(stats.wait_p50)}/{seconds(stats.wait_p99)}",
            str(stats.starts),
            failures,
        )
    return table


def pools_json(job: str, pools: Sequence[PoolStats]) -> str:
    """One line: the job, and for each pool its label and everything of `PoolStats`."""
    records = [{"pool": label, **asdict(stats), "failures": stats.failures} for label, stats in _by_label(pools)]
    return json.dumps({"job": job, "pools": records})


def seconds(value: float) -> str:
    """A time as people read it: `0s`, `3.2ms`, `1.50s`, `2:05min`."""
    if value < 0.00005:
        return "0s"
    if value < 0.9995:
        return f"{value * 1000:.3g}ms"
    if value < 99.5:
        return f"{value:.2f}s"
    return f"{round(value) // 60}:{round(value) % 60:02d}min"


def _by_label(pools: Sequence[PoolStats]) -> list[tuple[str, PoolStats]]:
    return sorted(zip(pool_labels(pools), pools, strict=True), key=lambda pair: pair[0])
