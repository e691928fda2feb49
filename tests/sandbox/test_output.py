"""The beginning and the end of what comes out of a pipe."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly.resources.sandbox.inside.output import Output


def through_a_pipe(pieces: list[bytes], limit: int) -> Output:
    reader, writer = os.pipe()
    output = Output(reader, limit)
    for piece in pieces:
        os.write(writer, piece)
        output.read()
    os.close(writer)
    output.drain()
    os.close(reader)
    return output


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=10), st.integers(2, 500))
def test_beginning_and_end_are_kept(pieces: list[bytes], limit: int) -> None:
    everything = b"".join(pieces)
    output = through_a_pipe(pieces, limit)
    content = output.content()
    assert not output.open
    assert output.size == len(everything)
    if len(everything) <= limit:
        assert content == everything
        assert not output.truncated
    else:
        half = limit // 2
        line = b"\n[... %d bytes left out ...]\n" % (len(everything) - limit)
        assert content == everything[:half] + line + everything[-(limit - half) :]
        assert output.truncated


def test_what_is_held_is_bounded() -> None:
    output = through_a_pipe([b"x" * 60_000] * 200, 1000)
    assert len(output._tail) < 1 << 19
    assert len(output.content()) < 1100


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    descriptors = os.pipe()
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


def test_nothing_waits_for_more(pipe: tuple[int, int]) -> None:
    output = Output(pipe[0], 100)
    output.drain()
    assert output.open
    os.write(pipe[1], b"more")
    output.drain()
    assert output.content() == b"more"
    output.clear()
    assert (output.content(), output.size) == (b"", 0)
