"""What the programs inside may use; the program that looks after them has no such limits."""

from __future__ import annotations

import os
import resource

from agentfly.resources.sandbox.inside.signals import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_OPEN_FILES = 1024
_PENDING_SIGNALS = 1024  # and timers


class Limits:
    """Limits of each process inside, in bytes and counts; 0 sets none.

    Args:
        settings: as the host sent them.
    """

    def __init__(self, settings: Mapping[str, bytes]) -> None:
        memory, processes, file_size = (int(settings[name]) for name in ("memory", "processes", "file_size"))
        # Data and not address space: programs reserve much of the latter and never use it.
        self._values = [
            (resource.RLIMIT_DATA, memory),
            (resource.RLIMIT_NPROC, processes),
            (resource.RLIMIT_FSIZE, file_size),
            (resource.RLIMIT_NOFILE, _OPEN_FILES),
            # Sandboxes run under one user outside, whose signals the kernel counts together: none may use them up.
            # Where a sandbox's processes aren't counted apart, this would count those of others.
            (resource.RLIMIT_SIGPENDING, _PENDING_SIGNALS if processes else 0),
        ]

    def apply(self) -> None:
        """Hold this process and its children to them."""
        for kind, value in self._values:
            if value:
                _, hard = resource.getrlimit(kind)
                value = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(kind, (value, value))
        for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_RTPRIO):
            resource.setrlimit(kind, (0, 0))


def fresh_signals() -> None:
    """Signals as a program expects them at its start: Python ignores some, and our own handlers end here."""
    signals.set_wakeup_fd(-1)
    for number in (signals.SIGCHLD, signals.SIGPIPE, signals.SIGXFSZ, signals.SIGINT, signals.SIGTERM):
        signals.signal(number, signals.SIG_DFL)


def close_all(*kept: int) -> None:
    """Close every descriptor above 2 but these."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the one that the listing itself had open
