"""One visit to the shop."""

from __future__ import annotations

import re
from typing import Final

from agentfly.envs.episodes import Game, Step
from agentfly.envs.webshop.catalogue import Catalogue, Product
from agentfly.envs.webshop.scoring import Goal, purchase_reward

_ACTION: Final = re.compile(r"(search|click)\[(.*)\]", re.DOTALL)
_PAGE = 10
_LAST_PAGE = 4


class Shop(Game):
    """Pages: the search, results of ten, a product with its options, its description.

    Args:
        catalogue: what is sold.
        goal: what is wanted.
        instruction: the goal in words.
    """

    def __init__(self, catalogue: Catalogue, goal: Goal, instruction: str) -> None:
        self._catalogue = catalogue
        self._goal = goal
        self._instruction = instruction
        self._found: list[Product] = []
        self._page = 0
        self._product: Product | None = None
        self._reading = False
        self._options: dict[str, str] = {}

    def observe(self) -> str:
        return f"Instruction: {self._instruction}\n{self._shown()}\nYou can click: {', '.join(self._clickable())}"

    def step(self, action: str) -> Step:
        match = _ACTION.fullmatch(action.strip())
        if match is None:
            return Step("Actions are search[words] and click[what stands on the page].", info={"invalid_actions": 1.0})
        verb, argument = match[1], match[2].strip()
        return self._search(argument) if verb == "search" else self._click(argument.lower())

    def _search(self, words: str) -> Step:
        if self._product is not None or self._found:
            return self._no("You can search from the first page only: click back to search.")
        found = self._catalogue.search(words)
        if not found:
            return self._no("Nothing was found: try other words.")
        self._found, self._page = found, 0
        return Step(self.observe())

    def _click(self, target: str) -> Step:
        if target not in self._clickable():
            return self._no(f"There is nothing to click named {target[:80]!r}. ")
        if target == "back to search":
            self._found, self._product, self._reading, self._options = [], None, False, {}
        elif target in ("next >", "< prev"):
            self._page += 1 if target == "next >" else -1
        elif target == "back":
            self._reading, self._product = False, self._product if self._reading else None
        elif target == "description":
            self._reading = True
        elif target == "buy now":
            return self._buy()
        elif self._product is None:
            self._product, self._options = self._catalogue.products[target], {}
        else:
            name = next(name for name, values in self._product.options.items() if target in values)
            self._options[name] = target
        return Step(self.observe())

    def _buy(self) -> Step:
        assert self._product is not None
        reward = purchase_reward(self._goal, self._product, self._options)
        return Step("Thank you for shopping with us!", reward, terminated=True, info={"bought": 1.0})

    def _no(self, reason: str) -> Step:
        return Step(f"{reason}\n{self.observe()}", info={"invalid_actions": 1.0})

    def _clickable(self) -> list[str]:
        if self._product is not None:
            if self._reading:
                return ["back to search", "back"]
            values = [value for options in self._product.options.values() for value in options]
            return ["back to search", "back", "description", "buy now", *values]
        if not self._found:
            return ["search[...]"]
        pages = ["next >"] if (self._page + 1) * _PAGE < len(self._found) and self._page < _LAST_PAGE else []
        pages += ["< prev"] if self._page else []
        return ["back to search", *pages, *(product.id for product in self._on_page())]

    def _on_page(self) -> list[Product]:
        return self._found[self._page * _PAGE : (self._page + 1) * _PAGE]

    def _shown(self) -> str:
        product = self._product
        if product is None and not self._found:
            return "The shop's first page, with a field to search."
        if product is None:
            lines = [f"[{each.id}] {each.title} {_price(each)}" for each in self._on_page()]
            return "\n".join([f"Page {self._page + 1} of the results:", *lines])
        if self._reading:
            return f"{product.title}: {product.kind}, {', '.join(product.attributes)}."
        lines = [
            f"{name}: {', '.join(f'({value})' if self._options.get(name) == value else value for value in values)}"
            for name, values in product.options.items()
        ]
        return "\n".join([f"{product.title} {_price(product)}", *lines])


def _price(product: Product) -> str:
    return f"${product.price / 100:.2f}"
