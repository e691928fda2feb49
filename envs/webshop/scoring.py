"""How good a purchase is: the reward of WebShop (Yao et al. 2022, section 4), on this catalogue's own types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentfly.envs.webshop.catalogue import Product


@dataclass(frozen=True)
class Goal:
    """What somebody wants.

    Attributes:
        product: one that is perfect.
        attributes, options: asked for.
        highest_price: in cents.
    """

    product: Product
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    highest_price: int


def purchase_reward(goal: Goal, bought: Product, options: Mapping[str, str]) -> float:
    """Share of attributes, options and price that fit, times how well the type does: from 0 to 1.

    r = r_type (|U_att & Y_att| + |U_opt & Y_opt| + [y_price <= u_price]) / (|U_att| + |U_opt| + 1)
    """
    attributes = sum(attribute in bought.attributes for attribute in goal.attributes)
    chosen = sum(options.get(name) == value for name, value in goal.options.items())
    price = bought.price <= goal.highest_price
    asked = len(goal.attributes) + len(goal.options) + 1
    return _type_reward(goal.product, bought) * (attributes + chosen + price) / asked


def _type_reward(wanted: Product, bought: Product) -> float:
    """1 for the same kind of thing, 0.5 for another of its category, 0.1 for anything else."""
    if bought.kind == wanted.kind:
        return 1.0
    return 0.5 if bought.category == wanted.category else 0.1
