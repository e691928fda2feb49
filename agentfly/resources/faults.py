"""The engine's own statement that something of its own went wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One entry of a rollout's ledger.

    Only the engine writes these; the text of an exception, which a policy could provoke, proves nothing.

    Attributes:
        kind: name of the error class that told the rollout.
        pool: the pool's name.
        detail: what happened.
    """

    kind: str
    pool: str
    detail: str


FaultSink = Callable[[Fault], None]


def ignore_faults(_: Fault) -> None:
    """For holders that keep no ledger."""
