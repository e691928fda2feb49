"""Who runs in which row, and how many tokens of each are computed in the next step. Pure."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

from agentfly.models.local.prefix_index import PrefixIndex
from agentfly.models.local.sequence import Sequence


@dataclass(frozen=True)
class Limits:
    """What the scheduler keeps to.

    Attributes:
        rows: most sequences that run together.
        cached_tokens: most of rows times the longest running sequence's limit; a single sequence
            runs whatever its length.
        prefill_tokens: most prompt tokens computed in a step, beyond one for each row, so that
            long prompts don't hold up those that are decoding.
        share_tokens: a prompt waits for one in prefill when it saves at least this many tokens.
    """

    rows: int = 256
    cached_tokens: int = 1 << 62
    prefill_tokens: int = 2048
    share_tokens: int = 16


@dataclass(frozen=True)
class Admission:
    """A sequence enters its row.

    Attributes:
        length: tokens whose keys and values are copied into it.
        source_row: the row to copy them from, as rows lie before the plan's moves.
        entry: or the parked entry to copy them from.
    """

    sequence: Sequence
    length: int
    source_row: int | None = None
    entry: int | None = None


@dataclass(frozen=True)
class Plan:
    """One step: copy for the admissions, then move rows, then compute.

    Attributes:
        admissions: sequences that enter.
        moves: `(from, to, length)`; afterwards the running sequences fill rows 0 to n - 1.
        chunks: tokens to compute for each row, at least 1.
    """

    admissions: list[Admission]
    moves: list[tuple[int, int, int]]
    chunks: list[int]


class Scheduler:
    """Continuous batching: sequences join and leave at any step.

    Waiting sequences enter by priority, then age. A freed row goes to the next of them, or the last
    row moves into it, so that the running ones are always rows 0 to n - 1.
    """

    def __init__(self, limits: Limits, index: PrefixIndex) -> None:
        self._limits = limits
        self._index = index
        self._rows: list[Sequence | None] = []
        self._waiting: list[tuple[tuple[int, int], Sequence]] = []

    @property
    def running(self) -> list[Sequence]:
        """Those that hold a row, by row."""
        return [sequence for sequence in self._rows if sequence is not None]

    @property
    def waiting(self) -> list[Sequence]:
        """Those that don't yet, in the order in which they will."""
        return [sequence for _, sequence in self._waiting]

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.running
        yield from self.waiting

    def __bool__(self) -> bool:
        return bool(self._waiting) or any(self._rows)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        insort(self._waiting, (sequence.order, sequence))

    def remove(self, sequence: Sequence) -> None:
        """Take one out, running or waiting; its row is free for the next plan."""
        if sequence.row < 0:
            self._waiting = [item for item in self._waiting if item[1] is not sequence]
            return
        self._index.drop(sequence.id)
        self._rows[sequence.row] = None
        sequence.row = -1

    def plan(self) -> Plan:
        """Decide the next step. Every running sequence gets at least one token of it."""
        admissions = self._admit() if self._waiting else []
        moves = self._compact()
        return Plan(admissions, moves, self._chunks())

    def computed(self, plan: Plan) -> None:
        """The plan was carried out: its tokens are in the cache."""
        for sequence, chunk in zip(self.running, plan.chunks, strict=True):
            before = sequence.computed
            sequence.computed = before + chunk
            if before < sequence.prompt_length <= sequence.computed:
                self._index.fulfil(sequence.id)

    def weights_changed(self) -> None:
        """Nothing computed so far may be shared any more.

        A sequence that has sampled goes on with the keys and values it has; one that is still in its
        prompt begins again, at little cost, and is then wholly of the new weights.
        """
        self._index.clear()
        for sequence in self.running:
            if len(sequence.tokens) > sequence.prompt_length:
                sequence.stale = True
            else:
                sequence.computed = 0
                self._index.promise(sequence.id, sequence.array())

    def _admit(self) -> list[Admission]:
        admissions: list[Admission] = []
        postponed: list[tuple[tuple[int, int], Sequence]] = []
        free = [row for row, sequence in enumerate(self._rows) if sequence is None]
        free.extend(range(len(self._rows), self._limits.rows))
        longest = max((sequence.limit for sequence in self._rows if sequence is not None), default=0)
        position = 0
        for row in free:
            running = len(self._rows) - self._rows.count(None)
            admission, position = self._next(position, running, longest, postponed)
            if admission is None:
                break
            longest = max(longest, admission.sequence.limit)
            self._place(admission, row)
            admissions.append(admission)
        self._waiting = postponed + self._waiting[position:]
        return admissions

    def _next(
        self, position: int, running: int, longest: int, postponed: list[tuple[tuple[int, int], Sequence]]
    ) -> tuple[Admission | None, int]:
        """The next that may enter, and the place in the queue after it."""
        while position < len(self._waiting):
            item = self._waiting[position]
            sequence = item[1]
            if running and (running + 1) * max(longest, sequence.limit) > self._limits.cached_tokens:
                break  # no overtaking: a long one must not wait for ever behind short ones
            position += 1
            # The last token is computed in any case: its output draws the next one.
            match = self._index.best(sequence.array(-1))
            if match.promised - match.length >= self._limits.share_tokens:
                postponed.append(item)
                continue
            row = next((row for row, other in enumerate(self._rows) if other and other.id == match.source), None)
            return Admission(sequence, match.length, row, match.source if row is None else None), position
        return None, position

    def _place(self, admission: Admission, row: int) -> None:
        sequence = admission.sequence
        sequence.row = row
        sequence.computed = admission.length
        self._index.promise(sequence.id, sequence.array())
        if row == len(self._rows):
            self._rows.append(sequence)
        else:
            self._rows[row] = sequence

    def _compact(self) -> list[tuple[int, int, int]]:
        moves: list[tuple[int, int, int]] = []
        rows = self._rows
        for hole in range(len(rows)):
            while rows and rows[-1] is None:
                rows.pop()
            if hole >= len(rows):
                break
            if rows[hole] is not None:
                continue
            last = rows.pop()
            assert last is not None
            moves.append((last.row, hole, last.computed))
            rows[hole] = last
            last.row = hole
        return moves

    def _chunks(self) -> list[int]:
        running = self.running
        chunks = [1] * len(running)
        spare = self._limits.prefill_tokens
        behind = [sequence for sequence in running if sequence.remaining > 1]
        for sequence in sorted(behind, key=lambda sequence: sequence.order):
            extra = min(sequence.remaining - 1, spare)
            chunks[sequence.row] += extra
            spare -= extra
        return chunks
