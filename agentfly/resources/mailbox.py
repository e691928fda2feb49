"""What the manager has to tell a client, until the client fetches it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agentfly.resources.core.types import Grant, Reject
from agentfly.resources.messages import News


class Mailbox:
    """Of one client.

    Args:
        handle_of: actor handle of a host by its id; None when it is gone.
    """

    def __init__(self, handle_of: Callable[[str], Any]) -> None:
        self._handle_of = handle_of
        self._answers: list[Grant | Reject] = []
        self._something = asyncio.Event()
        self._closed = False
        self.hosts: set[str] = set()

    def put(self, answer: Grant | Reject) -> None:
        """Keep an answer until it is fetched."""
        self._answers.append(answer)
        self._something.set()

    def close(self) -> None:
        """The client is taken for dead; should it ask, it learns of that."""
        self._closed = True
        self._something.set()

    async def wait(self) -> News:
        """What there is, as soon as there is something."""
        await self._something.wait()
        return self.collect()

    def collect(self) -> News:
        """What there is now, perhaps nothing."""
        if self._closed:
            return News(unknown=True)
        answers, self._answers = self._answers, []
        self._something.clear()
        # An actor handle costs much more to send than a grant.
        granted = {answer.lease.host for answer in answers if isinstance(answer, Grant)}
        handles = {host: handle for host in granted - self.hosts if (handle := self._handle_of(host)) is not None}
        self.hosts.update(handles)
        return News(answers, handles)
