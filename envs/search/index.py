"""A lexical index as a shared resource: SQLite's FTS5, ranked by BM25."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from agentfly.envs.search.corpus import Passage, made_up_passages, read_passages

from agentfly.resources import Resource

_WORD: Final = re.compile(r"\w+")
_MOST_TERMS = 32
_BATCH = 10_000


@dataclass(frozen=True)
class Hit:
    """A passage that was found, and how well it fits; higher is better."""

    passage: Passage
    score: float


class SearchIndex(Resource):
    """One index for all rollouts of a host, in memory.

    Terms that stand in many passages are dropped from a query as long as others are left: they cost most of the time
    and tell nothing.

    Args:
        corpus: JSONL file of passages; None takes the made-up world.
        frequent: share of passages above which a term is dropped.
    """

    def __init__(self, corpus: str | None = None, frequent: float = 0.05) -> None:
        self._corpus = corpus
        self._frequent = frequent
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._counts: dict[str, int] = {}
        self._total = 0

    async def start(self) -> None:
        """Build the index.

        Raises:
            ConfigError: the corpus can't be read.
        """
        await asyncio.to_thread(self._build)

    async def search(self, query: str, limit: int = 3) -> list[Hit]:
        """The best passages for a query of plain words; none for a query without any."""
        return await asyncio.to_thread(self._find, query, limit)

    def _find(self, query: str, limit: int) -> list[Hit]:
        terms = self._terms(query)
        if not terms:
            return []
        match = " OR ".join(f'"{term}"' for term in terms)
        sql = "SELECT id, title, text, -bm25(passages) FROM passages WHERE passages MATCH ? ORDER BY rank, id LIMIT ?"
        with self._lock:
            rows = self._database.execute(sql, (match, limit)).fetchall()
        return [Hit(Passage(*row[:3]), row[3]) for row in rows]

    async def stop(self) -> None:
        """Drop the index."""
        self._database.close()

    def _build(self) -> None:
        passages = made_up_passages() if self._corpus is None else read_passages(self._corpus)
        self._database.execute("CREATE VIRTUAL TABLE passages USING fts5(id UNINDEXED, title, text)")
        for batch in _batches(passages):
            rows = [(passage.id, passage.title, passage.text) for passage in batch]
            self._database.executemany("INSERT INTO passages VALUES (?, ?, ?)", rows)
            self._total += len(rows)
        self._database.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(passages, 'row')")
        often = self._database.execute("SELECT term, doc FROM terms WHERE doc > ?", (self._frequent * self._total,))
        self._counts = dict(often.fetchall())

    def _terms(self, query: str) -> list[str]:
        """The rare words of a query; where there are none, its rarest."""
        words = list(dict.fromkeys(_WORD.findall(query.lower())))[:_MOST_TERMS]
        rare = [word for word in words if word not in self._counts]
        known = sorted((word for word in words if word in self._counts), key=lambda word: self._counts[word])
        return rare or known[:1]


def _batches(passages: Iterable[Passage]) -> Iterable[list[Passage]]:
    batch: list[Passage] = []
    for passage in passages:
        batch.append(passage)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch
