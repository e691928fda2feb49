"""Tasks: a sandbox holds a file, the file holds a product, the prompt names the file."""

from __future__ import annotations

import random
from hashlib import blake2b

from agentfly.context.task import Task

_HELD_OUT_OF_256 = 26


def make_tasks(count: int, *, held_out: bool = False, seed: int = 0) -> list[Task]:
    """Tasks with the fields `prompt`, `files` (name to text), `expression` and `answer`.

    No expression of a held-out task is ever one of a training task, whatever the seeds: which side an
    expression is on follows from its digest.

    Args:
        count: how many, all with different expressions.
        held_out: the tenth of all expressions that training never sees.
        seed: the same seed gives the same tasks.
    """
    rng = random.Random(f"file_math/{held_out}/{seed}")
    tasks: dict[str, Task] = {}
    while len(tasks) < count:
        expression = random_expression(rng)
        if expression not in tasks and is_held_out(expression) == held_out:
            tasks[expression] = _task(expression, random_name(rng))
    return list(tasks.values())


def random_expression(rng: random.Random) -> str:
    """A product of two numbers of two digits that has four digits."""
    while True:
        left, right = rng.randint(11, 99), rng.randint(11, 99)
        if left * right >= 1000:
            return f"{left}*{right}"


def random_name(rng: random.Random) -> str:
    """Name of a file."""
    return f"q{rng.randint(10, 99)}.txt"


def is_held_out(expression: str) -> bool:
    """Which side of the split an expression is on."""
    return blake2b(expression.encode(), digest_size=1).digest()[0] < _HELD_OUT_OF_256


def solve(expression: str) -> str:
    """The value of an expression of ours."""
    left, right = expression.split("*")
    return str(int(left) * int(right))


def _task(expression: str, name: str) -> Task:
    fields = {
        "prompt": f"What is the value of the expression in {name}?",
        "files": {name: expression},
        "expression": expression,
        "answer": solve(expression),
    }
    return Task(f"{name}:{expression}", fields)
