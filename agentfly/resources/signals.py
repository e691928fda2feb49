"""Ray takes SIGTERM for itself when it starts; this gives it back to the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keeping_signal_handlers() -> Iterator[None]:
    """After the block the handlers that the program had set for SIGINT and SIGTERM are in force again.

    Ray's own, below Python's, prints a stack and aborts the process three seconds later, in the middle of whatever
    the program does in order to end well. Where the program had set none, Ray's stay.
    """
    if threading.current_thread() is not threading.main_thread():  # only there can handlers be set
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            if callable(handler):
                signal.signal(number, handler)
                signal.siginterrupt(number, False)  # as asyncio has it
