"""The tasks that come with this package: repositories of ours with one mistake each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentfly.envs.swe.repositories import pack, shipped

from agentfly.context import Task

ISSUE_TESTS = "tests/test_issue.py"


@dataclass(frozen=True)
class Mistake:
    """One mistake in a repository.

    Attributes:
        repository: its name.
        path: of the file that it is in.
        right, wrong: the code as it should be, and as the task has it.
        statement: how somebody who met it tells of it.
        tests: functions that fail because of it.
    """

    repository: str
    path: str
    right: str
    wrong: str
    statement: str
    tests: str


def make_tasks() -> list[Task]:
    """All tasks, in an order that stays.

    Their fields: `problem_statement`, `archive`, `test_files`, `fail_to_pass`, `pass_to_pass`, and `solution`, which
    no model is shown.
    """
    return [_task(number, mistake) for number, mistake in enumerate(MISTAKES, start=1)]


def _task(number: int, mistake: Mistake) -> Task:
    files = shipped(mistake.repository)
    right = files[mistake.path]
    if right.count(mistake.right) != 1:
        raise ValueError(f"{mistake.path} does not hold this once: {mistake.right!r}")
    tests = {path: content for path, content in files.items() if path.startswith("tests/")}
    files[mistake.path] = right.replace(mistake.right, mistake.wrong)
    imports = f"from {mistake.repository} import *\nimport pytest\n\n\n"
    fields = {
        "problem_statement": mistake.statement,
        "archive": pack(files),
        "test_files": {**tests, ISSUE_TESTS: imports + mistake.tests},
        "fail_to_pass": _names(ISSUE_TESTS, mistake.tests),
        "pass_to_pass": [name for path, content in tests.items() for name in _names(path, content)],
        "solution": {"path": mistake.path, "old": mistake.wrong, "new": mistake.right},
    }
    return Task(f"{mistake.repository}-{number}", fields)


def _names(path: str, source: str) -> list[str]:
    return [f"{path}::{name}" for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)]


MISTAKES = (
    Mistake(
        "intervals",
        "intervals/algebra.py",
        "start <= merged[-1][1]:",
        "start < merged[-1][1]:",
        "merge() leaves intervals apart that touch: merge([(1, 3), (3, 5)]) gives two intervals, where [(1, 5)] holds "
        "the same numbers. format_intervals shows it too.",
        "def test_touching():\n    assert merge([(1, 3), (3, 5)]) == [(1, 5)]\n\n\n"
        "def test_format_touching():\n    assert format_intervals([(1, 3), (3, 5)]) == '1-4'\n",
    ),
    Mistake(
        "intervals",
        "intervals/algebra.py",
        "(merged[-1][0], max(merged[-1][1], end))",
        "(merged[-1][0], end)",
        "An interval inside another one makes merge() lose numbers: merge([(0, 10), (2, 3)]) is [(0, 3)].",
        "def test_inside():\n    assert merge([(0, 10), (2, 3)]) == [(0, 10)]\n\n\n"
        "def test_total_inside():\n    assert total([(0, 10), (2, 3)]) == 10\n",
    ),
    Mistake(
        "intervals",
        "intervals/algebra.py",
        "            start = max(start, cut_end)",
        "            start = cut_end if cut_start > start else start",
        "subtract() ignores a cut that begins before the interval: subtract([(5, 10)], [(0, 7)]) should be [(7, 10)] "
        "but comes back as it was.",
        "def test_cut_at_the_beginning():\n    assert subtract([(5, 10)], [(0, 7)]) == [(7, 10)]\n\n\n"
        "def test_cut_all():\n    assert subtract([(5, 10)], [(0, 20)]) == []\n",
    ),
    Mistake(
        "intervals",
        "intervals/text.py",
        "str(start) if end - start == 1 else f",
        "str(start) if end == start else f",
        "format_intervals writes a single number as a range: [(7, 8)] becomes '7-7', not '7'.",
        "def test_single():\n    assert format_intervals([(7, 8)]) == '7'\n",
    ),
    Mistake(
        "ledger",
        "ledger/book.py",
        "        if self.balance(source) < cents:\n            raise Overdrawn(source)\n"
        "        self._cents[source] -= cents\n",
        "        self._cents[source] = self.balance(source) - cents\n        if self._cents[source] < 0:\n"
        "            raise Overdrawn(source)\n",
        "After a transfer that failed with Overdrawn the money is gone from the source all the same.",
        "def test_nothing_moves():\n    book = Book()\n    book.deposit('a', 10)\n    with pytest.raises(Overdrawn):\n"
        "        book.transfer('a', 'b', 20)\n    assert book.balance('a') == 10\n",
    ),
    Mistake(
        "ledger",
        "ledger/book.py",
        "                lines.append(-cents)\n            if target",
        "                lines.append(-cents)\n            elif target",
        "A transfer from an account to itself shows only one line in its statement; both sides should be there, first "
        "what went out.",
        "def test_to_itself():\n    book = Book()\n    book.deposit('a', 10)\n    book.transfer('a', 'a', 4)\n"
        "    assert book.statement('a') == [10, -4, 4]\n",
    ),
    Mistake(
        "ledger",
        "ledger/money.py",
        'int(part.ljust(2, "0") or 0)',
        "int(part or 0)",
        "parse_cents('12.5') gives 1205. One digit behind the point means tenths: 1250.",
        "def test_tenths():\n    assert parse_cents('12.5') == 1250\n\n\n"
        "def test_negative_tenths():\n    assert parse_cents('-0.5') == -50\n",
    ),
    Mistake(
        "ledger",
        "ledger/money.py",
        "[share + 1] * rest + [share] * (parts - rest)",
        "[share] * (parts - 1) + [share + rest]",
        "split(100, 3) gives [33, 33, 34], and split(5, 3) even [1, 1, 3]: parts may differ by one cent at most, and "
        "the larger ones come first.",
        "def test_larger_first():\n    assert split(100, 3) == [34, 33, 33]\n\n\n"
        "def test_one_cent_apart():\n    assert split(5, 3) == [2, 2, 1]\n",
    ),
    Mistake(
        "textkit",
        "textkit/names.py",
        '"-".join(words)[:limit].strip("-")',
        '"-".join(words)[:limit]',
        "slug() may end in a dash when it is cut: slug('one two', limit=4) is 'one-'.",
        "def test_cut_at_a_dash():\n    assert slug('one two', limit=4) == 'one'\n",
    ),
    Mistake(
        "textkit",
        "textkit/names.py",
        "        elif word:\n            words.append(word)",
        "        else:\n            words.append(word)",
        "slug('a, b') gives 'a--b', with two dashes where one should be.",
        "def test_one_dash():\n    assert slug('a, b') == 'a-b'\n",
    ),
    Mistake(
        "textkit",
        "textkit/tables.py",
        "            widths[place] = max(widths[place], len(str(cell)))",
        "            widths[place] = max(widths[place], len(cell))",
        "columns() and table() raise TypeError for rows with numbers.",
        "def test_numbers():\n    assert columns([[1, 'a'], [100, 'b']]) == [3, 1]\n\n\n"
        "def test_numbers_to_the_right():\n    assert table([['a', 5], ['b', 10]]) == 'a   5\\nb  10'\n",
    ),
    Mistake(
        "textkit",
        "textkit/tables.py",
        "            if place == len(widths):\n                widths.append(0)\n            widths",
        "            if len(widths) < len(rows[0]):\n                widths.append(0)\n            widths",
        "columns() raises IndexError when a later row is longer than the first one.",
        "def test_longer_row():\n    assert columns([['a'], ['b', 'cc']]) == [1, 2]\n",
    ),
)
