"""Every lease of a job as a line of JSON: for `what held us up`, and for planning."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from agentfly.resources.core.types import LeaseEnded


class EventLog:
    """Appends to a JSONL file. Fields: time (seconds since the epoch, when the lease ended), pool (its name), host,
    slot, epoch, client, holder, waited and held (seconds), how (it ended).

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

    def lease_ended(self, pool: str, event: LeaseEnded) -> None:
        """Write a lease down."""
        if self._file is None:
            return
        lease = event.lease
        record = {
            "time": self._clock(),
            "pool": pool,
            "host": lease.host,
            "slot": lease.slot,
            "epoch": lease.epoch,
            "client": lease.client,
            "holder": event.holder,
            "waited": round(event.waited, 6),
            "held": round(event.held, 6),
            "how": event.how,
        }
        self._file.write(json.dumps(record) + "\n")

    def flush(self) -> None:
        """What was written is in the file then, whatever happens to this process."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            self._file.close()
            self._file = None
