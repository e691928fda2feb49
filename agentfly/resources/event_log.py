"""What happens to a job's pools as lines of JSON: for `what held us up`, and for planning."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from agentfly.resources.core.types import LeaseEnded, PoolLimits


class EventLog:
    """Appends to a JSONL file. Every line has event, time (seconds since the epoch) and pool (its name), and then

    - pool: key, limits (see `PoolLimits`); once, when it is first used;
    - lease: host, slot, epoch, client, holder, waited and held (seconds), how (it ended); when it ends;
    - start: host, slots, seconds; when a host is up;
    - reset: host, slot, renewed (the resource was replaced), ok, seconds; when it has ended.

    Args:
        path: on the manager's node; its folders are made. None keeps no log.
        clock: for `time`.
    """

    def __init__(self, path: str | None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._file: IO[str] | None = None
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def pool_made(self, key: str, limits: PoolLimits) -> None:
        """Write down what a pool is to be."""
        self._write("pool", limits.name, key=key, limits=asdict(limits))

    def lease_ended(self, pool: str, event: LeaseEnded) -> None:
        """Write a lease down."""
        lease = event.lease
        self._write(
            "lease",
            pool,
            host=lease.host,
            slot=lease.slot,
            epoch=lease.epoch,
            client=lease.client,
            holder=event.holder,
            waited=round(event.waited, 6),
            held=round(event.held, 6),
            how=event.how,
        )

    def host_started(self, pool: str, host: str, slots: int, seconds: float) -> None:
        """Write the start of a host down."""
        self._write("start", pool, host=host, slots=slots, seconds=round(seconds, 6))

    def slot_reset(self, pool: str, host: str, slot: int, seconds: float, *, renewed: bool, ok: bool) -> None:
        """Write a reset down."""
        self._write("reset", pool, host=host, slot=slot, renewed=renewed, ok=ok, seconds=round(seconds, 6))

    def flush(self) -> None:
        """What was written is in the file then, whatever happens to this process."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, event: str, pool: str, **values: Any) -> None:
        if self._file is not None:
            self._file.write(json.dumps({"event": event, "time": self._clock(), "pool": pool, **values}) + "\n")
