"""Messages: a length, then named byte strings. Neither side has to trust the other to read them."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Mapping

    Value = bytes | str | int | float
    Frame = dict[str, bytes]
else:
    Value = Frame = object  # for annotations, which nobody evaluates

HEADER = 4


def encode(fields: Mapping[str, Value]) -> bytes:
    """A message with its header; numbers and booleans are written as decimal text."""
    parts = []
    for name, value in fields.items():
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        elif not isinstance(value, bytes):
            value = repr(+value).encode()
        key = name.encode("utf-8", "surrogatepass")
        parts += [len(key).to_bytes(4, "big"), key, len(value).to_bytes(4, "big"), value]
    body = b"".join(parts)
    return len(body).to_bytes(HEADER, "big") + body


def decode(body: bytes) -> Frame:
    """The fields of a message without its header.

    Raises:
        ValueError: it is none.
    """
    fields: Frame = {}
    at = 0
    while at < len(body):
        key, at = _item(body, at)
        value, at = _item(body, at)
        fields[key.decode("utf-8", "replace")] = value
    return fields


def _item(body: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    end = start + int.from_bytes(body[at:start], "big")
    if start > len(body) or end > len(body):
        raise ValueError("a message ends in the middle of a field")
    return body[start:end], end


class Inbox:
    """Cuts a stream of bytes into messages.

    Args:
        most: bytes of a message at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The messages that are complete with this data.

        Raises:
            ValueError: what came is no message, or too long a one.
        """
        self._buffer += data
        frames = []
        while len(self._buffer) >= HEADER:
            size = int.from_bytes(self._buffer[:HEADER], "big")
            if size > self._most:
                raise ValueError(f"a message of {size} bytes")
            if len(self._buffer) < HEADER + size:
                break
            frames.append(decode(bytes(self._buffer[HEADER : HEADER + size])))
            del self._buffer[: HEADER + size]
        return frames
