"""Questions over the made-up world, of one and of two steps; and rows of question answering sets."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentfly.envs.search.corpus import Person, world

from agentfly.context import Task
from agentfly.errors import ConfigError


def make_tasks(count: int = 200, *, held_out: bool = False, seed: int = 0) -> list[Task]:
    """Tasks with the fields `prompt`, `answer` (a list) and `searches`, which no model is shown.

    Args:
        count: how many at most; there are 864 to train on and 96 that are held out.
        held_out: questions about people that training never asks about.
        seed: of their order.
    """
    people = [person for index, person in enumerate(world().people) if (index % 10 == 0) == held_out]
    tasks = [task for person in people for task in _about(person)]
    random.Random(f"search/{seed}").shuffle(tasks)
    return tasks[:count]


def held_out_tasks() -> list[Task]:
    """Fifty tasks for evaluation."""
    return make_tasks(50, held_out=True)


def qa_task(row: Mapping[str, Any], number: int) -> Task:
    """A row of Natural Questions, HotpotQA and their like, as Search-R1 has them (`question`, `golden_answers`).

    Raises:
        ConfigError: the row has another form.
    """
    question, answers = row.get("question"), row.get("golden_answers", row.get("answer"))
    if not isinstance(question, str) or not isinstance(answers, (str, Sequence)):
        raise ConfigError(f"row {number} is no question: it needs `question` and `golden_answers`")
    return Task(str(row.get("id", number)), {"prompt": question, "answer": answers})


def _about(person: Person) -> list[Task]:
    there = world()
    river, founded = there.rivers[person.city], there.founded[person.city]
    asked = (
        ("city", f"In which city was {person.name} born?", person.city, [person.name]),
        ("author", f"What was the trade of the author of {person.book}?", person.trade, [person.book]),
        ("river", f"On which river is the city where {person.name} was born?", river, [person.name, person.city]),
        (
            "founded",
            f"In which year was the city founded where the author of {person.book} was born?",
            str(founded),
            [person.book, person.city],
        ),
    )
    return [
        Task(f"{kind}-{person.name}", {"prompt": question, "answer": [answer], "searches": searches})
        for kind, question, answer, searches in asked
    ]
