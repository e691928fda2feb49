"""Signals, without the enumerations around them, which take longer to import than all the rest."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signals
else:
    import _signal as signals

__all__ = ["signals"]
