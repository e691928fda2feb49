"""Word problems: made by templates, or rows of GSM8K."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from agentfly.envs.calculator.arithmetic import evaluate, show

from agentfly.context import Task
from agentfly.errors import ConfigError

_NAMES: Final = ("Ada", "Bo", "Chidi", "Dina", "Emre", "Fatou", "Gus", "Hana", "Ivo", "Jun")
_THINGS: Final = ("apples", "books", "coins", "marbles", "pencils", "shells", "stamps", "tickets")

# Question and expression of its answer.
Template = Callable[[random.Random, str, str], tuple[str, str]]


def make_tasks(count: int = 200, *, held_out: bool = False, seed: int = 0) -> list[Task]:
    """Tasks with the fields `prompt`, `expression` and `answer`; the same seed gives the same.

    Args:
        count: how many.
        held_out: other ones, that training never sees.
        seed: of the numbers in them.
    """
    rng = random.Random(f"calculator/{held_out}/{seed}")
    tasks: dict[str, Task] = {}
    while len(tasks) < count:
        template = rng.choice(_TEMPLATES)
        question, expression = template(rng, rng.choice(_NAMES), rng.choice(_THINGS))
        if (sum(map(ord, question)) % 10 == 0) != held_out:
            continue  # a tenth of all questions is on the other side
        fields = {"prompt": question, "expression": expression, "answer": show(evaluate(expression))}
        tasks[question] = Task(f"calculator-{len(tasks)}", fields)
    return list(tasks.values())


def held_out_tasks() -> list[Task]:
    """Fifty tasks for evaluation."""
    return make_tasks(50, held_out=True)


def gsm8k_task(row: Mapping[str, Any], number: int) -> Task:
    """A row of GSM8K (`question`, `answer` that ends in `#### 72`) as a task.

    Raises:
        ConfigError: the row has another form.
    """
    question, worked = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(worked, str) or "####" not in worked:
        raise ConfigError(f"row {number} is none of GSM8K: it needs `question`, and `answer` with `#### number`")
    answer = worked.rpartition("####")[2].strip().replace(",", "")
    return Task(f"gsm8k-{number}", {"prompt": question, "answer": answer, "worked": worked})


def _boxes(rng: random.Random, name: str, thing: str) -> tuple[str, str]:
    boxes, each, given = rng.randint(12, 98), rng.randint(12, 98), rng.randint(11, 99)
    question = f"{name} has {boxes} boxes with {each} {thing} in each and gives {given} away. How many are left?"
    return question, f"{boxes}*{each}-{given}"


def _money(rng: random.Random, name: str, thing: str) -> tuple[str, str]:
    first, price, second, other = (rng.randint(3, 60) for _ in range(4))
    question = (
        f"{name} buys {first} {thing} for {price} cents each and {second} others for {other} cents each. "
        "How many cents is that?"
    )
    return question, f"{first}*{price}+{second}*{other}"


def _share(rng: random.Random, name: str, thing: str) -> tuple[str, str]:
    people, each, lost = rng.randint(3, 12), rng.randint(11, 80), rng.randint(2, 10)
    total = people * each + lost
    question = f"{name} has {total} {thing}, loses {lost}, and shares the rest among {people}. How many has each?"
    return question, f"({total}-{lost})/{people}"


def _travel(rng: random.Random, name: str, thing: str) -> tuple[str, str]:
    speed, hours, back = rng.randint(21, 95), rng.randint(3, 19), rng.randint(11, 60)
    question = f"{name} sells {thing}, drives {speed} km an hour for {hours} hours and {back} km back. How many km?"
    return question, f"{speed}*{hours}+{back}"


_TEMPLATES: Final[tuple[Template, ...]] = (_boxes, _money, _share, _travel)
