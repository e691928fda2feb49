"""What customers want."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from agentfly.envs.webshop.catalogue import DEFAULT_SIZE, catalogue
from agentfly.envs.webshop.scoring import Goal
from agentfly.envs.webshop.shop import Shop

from agentfly.context import Task


def make_tasks(count: int = 200, *, held_out: bool = False, seed: int = 0, size: int = DEFAULT_SIZE) -> list[Task]:
    """Tasks with the fields `prompt`, `goal` and `catalogue_size`; the same seed gives the same.

    Args:
        count: how many.
        held_out: products that training never asks for.
        seed: of what is asked for.
        size: of the catalogue.
    """
    rng = random.Random(f"webshop/{held_out}/{seed}")
    wanted = [each for index, each in enumerate(sorted(catalogue(size).products)) if (index % 10 == 0) == held_out]
    return [_task(rng, rng.choice(wanted), number, size) for number in range(count)]


def held_out_tasks() -> list[Task]:
    """Fifty tasks for evaluation."""
    return make_tasks(50, held_out=True)


def open_shop(row: Mapping[str, Any]) -> Shop:
    """A visit for a task's row."""
    sold = catalogue(int(row["catalogue_size"]))
    goal: Mapping[str, Any] = row["goal"]
    wanted = Goal(
        sold.products[goal["product"]], tuple(goal["attributes"]), dict(goal["options"]), int(goal["highest_price"])
    )
    return Shop(sold, wanted, _instruction(wanted))


def _task(rng: random.Random, product_id: str, number: int, size: int) -> Task:
    product = catalogue(size).products[product_id]
    attributes = tuple(rng.sample(product.attributes, min(2, len(product.attributes))))
    options = {name: rng.choice(values) for name, values in product.options.items()}
    highest = product.price + rng.randint(100, 3000)
    goal = {"product": product.id, "attributes": attributes, "options": options, "highest_price": highest}
    row = {"goal": goal, "catalogue_size": size}
    return Task(f"webshop-{number}-{product.id}", {"prompt": open_shop(row).observe(), **row})


def _instruction(goal: Goal) -> str:
    options = ", and ".join(f"{name} {value}" for name, value in goal.options.items())
    praised = ", ".join(goal.attributes)
    return (
        f"Find me {praised} {goal.product.kind} with {options}, and a price lower than "
        f"{goal.highest_price / 100:.2f} dollars."
    )
