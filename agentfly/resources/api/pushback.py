"""Whether an exception says that an API refuses calls for their rate, and for how long."""

from __future__ import annotations

import email.utils
import math
from collections.abc import Mapping
from typing import Any

from agentfly.errors import RateLimited

_REFUSALS = frozenset({429, 503, 529})


def pushback(error: BaseException, now: float) -> RateLimited | None:
    """The refusal in an exception: `RateLimited` itself, or what httpx, openai, requests or aiohttp raise for a status.

    Args:
        error: what a call raised.
        now: seconds since the epoch, for a Retry-After that is a date.
    """
    if isinstance(error, RateLimited):
        return error
    response: Any = getattr(error, "response", None)
    holder = error if response is None else response
    status = getattr(holder, "status_code", getattr(holder, "status", None))
    if status not in _REFUSALS:
        return None
    headers: Any = getattr(holder, "headers", None)
    return RateLimited(f"status {status}", retry_after(headers if isinstance(headers, Mapping) else {}, now))


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a response asks to wait (RFC 9110, 10.2.3, or OpenAI's milliseconds); None when it doesn't."""
    known = {name.lower(): value for name, value in headers.items()}
    if (milliseconds := _number(known.get("retry-after-ms"))) is not None:
        return milliseconds / 1000.0
    value = known.get("retry-after")
    if value is None:
        return None
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
