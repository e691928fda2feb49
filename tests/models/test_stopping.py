"""Stop texts: found at the first token that completes one, whatever the tokens' borders."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from agentfly.models.stopping import StopText, first_stop, held_back, shown

# Bytes of a character in tokens of their own, tokens of several letters, one without text.
TOKENS = [b"a", b"b", b"ab", b"ba", b"aab", "\u4e2d".encode()[:1], "\u4e2d".encode()[1:], b"\xe4b", b"", b" ", b"bab a"]
STOPS = st.lists(st.text("ab \u4e2d", min_size=1, max_size=6), min_size=1, max_size=3)


def decode(ids: Sequence[int]) -> str:
    return b"".join(TOKENS[token] for token in ids).decode("utf-8", "replace")


@given(st.lists(st.integers(0, len(TOKENS) - 1), max_size=40), STOPS, st.integers(0, 3))
def test_the_first_token_that_completes_a_stop_text_is_found(ids: list[int], stops: list[str], prompt: int) -> None:
    stop_text = StopText(stops, decode)
    tokens = [8] * prompt + ids
    found = None
    for length in range(1, len(ids) + 1):
        found = stop_text.found(tokens[: prompt + length], prompt)
        whole = decode(ids[:length])
        assert (found is not None) == any(stop in whole for stop in stops)
        if found is not None:
            assert whole.find(found) == first_stop(whole, stops)[0]
            assert not any(stop in shown(whole, found) for stop in stops)
            return
    assert found is None


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3))
def test_what_may_become_a_stop_text_is_held_back(text: str, stops: list[str]) -> None:
    held = held_back(text, stops)
    sure = text[: len(text) - held]
    for stop in stops:
        assert all(not text.endswith(stop[:size]) for size in range(held + 1, len(stop)))
    assert held == 0 or any(stop.startswith(text[len(sure) :]) for stop in stops)


def test_of_two_stop_texts_the_one_that_begins_first_ends_the_text() -> None:
    assert first_stop("one two three", ["three", "two"]) == (4, "two")
    assert first_stop("one", ["two"]) == (3, None)
