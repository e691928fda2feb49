"""Messages between the host and the program inside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly.resources.sandbox.inside.frames import HEADER, Inbox, decode, encode

FIELDS = st.dictionaries(st.text(st.characters(codec="utf-8")), st.binary(), max_size=5)


@given(st.lists(FIELDS, max_size=4), st.lists(st.integers(1, 30)))
def test_messages_come_out_as_they_went_in_however_they_are_cut(
    messages: list[dict[str, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(encode(message) for message in messages)
    inbox = Inbox(1 << 20)
    received = []
    for size in [*cuts, len(stream)]:
        received += inbox.feed(stream[:size])
        stream = stream[size:]
    assert received == messages


@given(st.binary(max_size=200))
def test_garbage_is_a_value_error_at_most(garbage: bytes) -> None:
    inbox = Inbox(100)
    try:
        for at in range(len(garbage)):
            inbox.feed(garbage[at : at + 1])
    except ValueError:
        pass


def test_text_and_numbers_are_bytes_inside() -> None:
    message = encode({"a": "ä\ud800", "b": 5, "c": 0.25, "d": True})
    assert decode(message[HEADER:]) == {"a": b"\xc3\xa4\xed\xa0\x80", "b": b"5", "c": b"0.25", "d": b"1"}


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="200 bytes"):
        Inbox(100).feed((200).to_bytes(4, "big"))
    with pytest.raises(ValueError, match="middle of a field"):
        decode(b"\0\0\0\x09abc")
