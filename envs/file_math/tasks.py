"""Tasks: a sandbox holds a file, the file holds a product, the prompt names the file."""

from __future__ import annotations

import random
from functools import cache
from hashlib import blake2b

from agentfly.context.task import Task
from agentfly.errors import ConfigError

_HELD_OUT_OF_256 = 26


def make_tasks(count: int, *, held_out: bool = False, seed: int = 0) -> list[Task]:
    """Tasks with the fields `prompt`, `files` (name to text), `expression` and `answer`.

    No expression of a held-out task is ever one of a training task, whatever the seeds: which side an
    expression is on follows from its digest.

    Args:
        count: how many, all with different expressions.
        held_out: the tenth of all expressions that training never sees.
        seed: the same seed gives the same tasks.

    Raises:
        ConfigError: there aren't so many expressions.
    """
    there = expressions(held_out)
    if count > len(there):
        raise ConfigError(f"file_math has {len(there)} {'held-out' if held_out else 'training'} tasks, not {count}")
    rng = random.Random(f"file_math/{held_out}/{seed}")
    return [_task(expression, _random_name(rng)) for expression in rng.sample(there, count)]


@cache
def expressions(held_out: bool) -> tuple[str, ...]:
    """All products of two numbers of two digits that have four digits, of one side of the split."""
    products = [f"{left}*{right}" for left in range(11, 100) for right in range(11, 100) if left * right >= 1000]
    return tuple(product for product in products if _is_held_out(product) == held_out)


def solve(expression: str) -> str:
    """The value of an expression of ours."""
    left, right = expression.split("*")
    return str(int(left) * int(right))


def _is_held_out(expression: str) -> bool:
    return blake2b(expression.encode(), digest_size=1).digest()[0] < _HELD_OUT_OF_256


def _random_name(rng: random.Random) -> str:
    return f"q{rng.randint(10, 99)}.txt"


def _task(expression: str, name: str) -> Task:
    fields = {
        "prompt": f"What is the value of the expression in {name}?",
        "files": {name: expression},
        "expression": expression,
        "answer": solve(expression),
    }
    return Task(f"{name}:{expression}", fields)
