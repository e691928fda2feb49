"""The radix tree agrees with a search through everything, whatever was inserted and removed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentfly.models.local.prefix_index import PrefixIndex
from agentfly.models.local.prefix_tree import PrefixTree, common_prefix

sequences = st.lists(st.integers(0, 2), max_size=8)


def array(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, np.int64)


def shared(a: list[int], b: list[int]) -> int:
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


@given(sequences, sequences)
def test_common_prefix(a: list[int], b: list[int]) -> None:
    assert common_prefix(array(a), array(b)) == shared(a, b)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), sequences)), sequences)
def test_match_finds_a_longest_prefix(changes: list[tuple[bool, int, list[int]]], wanted: list[int]) -> None:
    tree: PrefixTree[int] = PrefixTree()
    there: dict[int, list[int]] = {}
    for insert, key, tokens in changes:
        if insert and key not in there:
            tree.insert(key, array(tokens))
            there[key] = tokens
        elif not insert:
            tree.remove(key)
            there.pop(key, None)
        assert len(tree) == len(there)
        length, found = tree.match(array(wanted))
        assert length == max((shared(wanted, tokens) for tokens in there.values()), default=0)
        if length:
            assert found is not None
            assert shared(wanted, there[found]) == length


@given(st.lists(sequences, unique_by=tuple))
def test_an_emptied_tree_holds_nothing(inserted: list[list[int]]) -> None:
    tree: PrefixTree[int] = PrefixTree()
    for key, tokens in enumerate(inserted):
        tree.insert(key, array(tokens))
    for key in range(len(inserted)):
        tree.remove(key)
    assert tree.match(array([0, 1, 2])) == (0, None)
    assert not tree._root.children  # no node is left behind


def test_a_promise_counts_only_once_it_is_fulfilled() -> None:
    index = PrefixIndex()
    index.promise(1, array([5, 6, 7]))
    assert (index.best(array([5, 6, 9])).length, index.best(array([5, 6, 9])).promised) == (0, 2)
    index.fulfil(1)
    match = index.best(array([5, 6, 9]))
    assert (match.length, match.source, match.promised) == (2, 1, 0)
    index.drop(1)
    assert index.best(array([5, 6, 9])).length == 0
    index.fulfil(1)
    assert index.best(array([5, 6, 9])).length == 0
