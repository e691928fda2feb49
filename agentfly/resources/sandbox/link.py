"""The host's end of the socket to the program inside."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from itertools import count
from typing import Protocol, Self, cast

from agentfly.resources.sandbox.inside.frames import Frame, Inbox, Value, encode

# What is inside may be hostile: this much of it is held at most.
_MOST = 64 << 20


class LinkClosed(Exception):
    """There is no answer, and won't be: the other side is gone, or sends what is no answer."""


class Asking(Protocol):
    """What a running sandbox needs of the way to the program inside."""

    closed: asyncio.Future[None]

    async def ask(self, operation: str, fields: Mapping[str, Value]) -> Frame:
        """Send a request and wait for its answer. Raises LinkClosed when there will be none."""
        ...

    def close(self) -> None:
        """Close our end."""
        ...


class Link(asyncio.Protocol):
    """Sends requests and hands out their answers. Make it with `open`."""

    def __init__(self) -> None:
        self._inbox = Inbox(_MOST)
        self._numbers = count(1)
        self._waiting: dict[bytes, asyncio.Future[Frame]] = {}
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ready: asyncio.Future[Frame] = self._expect(b"0")

    @classmethod
    async def open(cls, sock: socket.socket) -> Self:
        """Take over a connected socket."""
        _, link = await asyncio.get_running_loop().create_unix_connection(cls, sock=sock)
        return link

    def send(self, fields: Mapping[str, Value]) -> None:
        """Send a message that has no answer."""
        if self._transport is not None:
            self._transport.write(encode(fields))

    async def ask(self, operation: str, fields: Mapping[str, Value]) -> Frame:
        """Send a request and wait for its answer; cancelling this cancels the work inside.

        Raises:
            LinkClosed: there will be none.
        """
        if self.closed.done():
            raise LinkClosed
        number = b"%d" % next(self._numbers)
        answer = self._expect(number)
        self.send({"id": number, "op": operation, **fields})
        try:
            return await answer
        except asyncio.CancelledError:
            self.send({"id": number, "op": "cancel"})
            raise
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        """Close our end; what is inside ends when it sees that."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._inbox.feed(data)
        except ValueError:
            self.close()
            return
        for frame in frames:
            answer = self._waiting.pop(frame.get("id", b""), None)
            if answer is not None and not answer.done():
                answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LinkClosed())
        self._waiting.clear()

    def _expect(self, number: bytes) -> asyncio.Future[Frame]:
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_seen)
        self._waiting[number] = answer
        return answer


def _seen(answer: asyncio.Future[Frame]) -> None:
    """Somebody who was cancelled doesn't ask for the exception any more, which is no reason to log it."""
    if not answer.cancelled():
        answer.exception()
