"""A radix tree over token sequences: who shares the longest prefix with a given one?"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int64]
K = TypeVar("K", bound=Hashable)


def common_prefix(a: Tokens, b: Tokens) -> int:
    """Length of the longest common prefix of two sequences."""
    length = min(len(a), len(b))
    if length == 0:
        return 0
    different = a[:length] != b[:length]
    first = int(different.argmax())
    return first if different[first] else length


class _Node(Generic[K]):
    """A stretch of tokens after `parent`; `keys` are the sequences that end here."""

    __slots__ = ("children", "edge", "keys", "parent")

    def __init__(self, edge: Tokens, parent: _Node[K] | None) -> None:
        self.edge = edge
        self.parent = parent
        self.children: dict[int, _Node[K]] = {}
        self.keys: dict[K, None] = {}


class PrefixTree(Generic[K]):
    """Token sequences under keys. Every operation costs the length of one sequence at most."""

    def __init__(self) -> None:
        self._root: _Node[K] = _Node(np.empty(0, np.int64), None)
        self._nodes: dict[K, _Node[K]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: K) -> bool:
        return key in self._nodes

    def insert(self, key: K, tokens: Tokens) -> None:
        """Add a sequence; the key must be new."""
        if key in self._nodes:
            raise KeyError(f"{key!r} is in the tree already")
        node, rest = self._root, tokens
        while len(rest):
            child = node.children.get(int(rest[0]))
            if child is None:
                leaf = _Node(rest, node)
                node.children[int(rest[0])] = leaf
                node = leaf
                break
            shared = common_prefix(child.edge, rest)
            node = child if shared == len(child.edge) else self._split(child, shared)
            rest = rest[shared:]
        node.keys[key] = None
        self._nodes[key] = node

    def remove(self, key: K) -> None:
        """Take a sequence out; a key that isn't there is ignored."""
        node = self._nodes.pop(key, None)
        if node is None:
            return
        del node.keys[key]
        parent = node.parent
        if not node.keys and not node.children and parent is not None:
            del parent.children[int(node.edge[0])]
            node = parent
        self._join_only_child(node)

    def match(self, tokens: Tokens) -> tuple[int, K | None]:
        """The longest prefix that a stored sequence shares with `tokens`.

        Returns:
            Its length, and the key of one of the sequences that share it; 0 and None when there is none.
        """
        node, depth = self._root, 0
        while depth < len(tokens):
            child = node.children.get(int(tokens[depth]))
            if child is None:
                break
            shared = common_prefix(child.edge, tokens[depth:])
            depth += shared
            node = child
            if shared < len(child.edge):
                break
        return (depth, self._any_key(node)) if depth else (0, None)

    @staticmethod
    def _any_key(node: _Node[K]) -> K:
        while not node.keys:
            node = next(iter(node.children.values()))
        return next(iter(node.keys))

    @staticmethod
    def _split(node: _Node[K], length: int) -> _Node[K]:
        """Put a node in after the first `length` tokens of `node`'s edge."""
        parent = node.parent
        assert parent is not None
        upper: _Node[K] = _Node(node.edge[:length], parent)
        parent.children[int(node.edge[0])] = upper
        node.edge = node.edge[length:]
        node.parent = upper
        upper.children[int(node.edge[0])] = node
        return upper

    @staticmethod
    def _join_only_child(node: _Node[K]) -> None:
        """Undo a split that nothing needs any more."""
        if node.parent is None or node.keys or len(node.children) != 1:
            return
        (child,) = node.children.values()
        child.edge = np.concatenate([node.edge, child.edge])
        child.parent = node.parent
        node.parent.children[int(child.edge[0])] = child
