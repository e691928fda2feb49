"""A made-up catalogue; the same seed and size give the same."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

DEFAULT_SIZE: Final = 1200
_BRANDS: Final = ("Alder", "Brook", "Cinder", "Dune", "Ember", "Fjord", "Grove", "Harbor", "Iris", "Juniper")
_COLOURS: Final = ("black", "blue", "green", "grey", "red", "white", "yellow")
_KINDS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {
    # category: product types, attributes, sizes
    "clothing": (
        ("shirt", "jacket", "trousers", "sweater"),
        ("machine washable", "slim fit", "long sleeve", "organic cotton", "quick drying", "wrinkle free"),
        ("small", "medium", "large", "x-large"),
    ),
    "shoes": (
        ("sneakers", "boots", "sandals"),
        ("non slip", "arch support", "waterproof", "memory foam", "rubber sole", "steel toe"),
        ("38", "40", "42", "44"),
    ),
    "furniture": (
        ("chair", "desk", "bookcase", "sofa"),
        ("solid wood", "easy assembly", "adjustable height", "space saving", "metal frame", "water resistant"),
        ("narrow", "standard", "wide"),
    ),
    "kitchen": (
        ("kettle", "pan", "knife set", "blender"),
        ("dishwasher safe", "stainless steel", "bpa free", "non stick", "energy saving", "heavy duty"),
        ("1 litre", "2 litre", "3 litre"),
    ),
    "electronics": (
        ("headphones", "speaker", "keyboard", "charger"),
        ("noise cancelling", "long lasting battery", "wireless", "fast charging", "water proof", "carrying case"),
        ("compact", "full size"),
    ),
}
_WORD: Final = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Product:
    """What is sold.

    Attributes:
        id: as it is clicked.
        category, kind: such as clothing, and shirt.
        attributes: what it is praised for.
        options: names of options and their values.
        price: in cents.
    """

    id: str
    title: str
    category: str
    kind: str
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    price: int


class Catalogue:
    """Products, and a search over their texts."""

    def __init__(self, products: Sequence[Product]) -> None:
        self.products = {product.id: product for product in products}
        self._places: dict[str, list[str]] = defaultdict(list)
        for product in products:
            for word in dict.fromkeys(_words(f"{product.title} {' '.join(product.attributes)}")):
                self._places[word].append(product.id)

    def search(self, query: str, limit: int = 50) -> list[Product]:
        """Products by the weight of the query's words in them: a word of few products counts more."""
        scores: dict[str, float] = defaultdict(float)
        for word in dict.fromkeys(_words(query)):
            places = self._places.get(word, ())
            for place in places:
                scores[place] += 1.0 / len(places)
        ranked = sorted(scores, key=lambda place: (-scores[place], place))
        return [self.products[place] for place in ranked[:limit]]


@cache
def catalogue(size: int = DEFAULT_SIZE) -> Catalogue:
    """The catalogue of a size; read-only, one for a process."""
    rng = random.Random(f"webshop/{size}")
    return Catalogue([_product(rng, number) for number in range(size)])


def _product(rng: random.Random, number: int) -> Product:
    category = rng.choice(sorted(_KINDS))
    kinds, attributes, sizes = _KINDS[category]
    kind, brand = rng.choice(kinds), rng.choice(_BRANDS)
    praised = tuple(sorted(rng.sample(attributes, rng.randint(2, 4))))
    colours = tuple(sorted(rng.sample(_COLOURS, rng.randint(2, 4))))
    chosen = tuple(size for size in sizes if rng.random() < 0.75) or sizes[:1]
    title = f"{brand} {rng.choice(praised)} {kind} model {number}"
    price = rng.randint(500, 15000)
    return Product(f"b{number:05d}", title, category, kind, praised, {"color": colours, "size": chosen}, price)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
