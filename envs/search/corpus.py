"""Passages: a made-up world of ours, or rows of wiki-18."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from agentfly.errors import ConfigError

_SYLLABLES: Final = ("ba", "dor", "el", "fen", "gri", "hul", "ka", "lo", "mir", "na", "os", "pel", "ru", "sta", "tor")
_TRADES: Final = ("painter", "astronomer", "baker", "composer", "geologist", "printer", "shipwright", "weaver")
_CITIES, _PEOPLE, _RIVERS, _BOOKS = 60, 240, 40, 240


@dataclass(frozen=True)
class Passage:
    """What is found.

    Attributes:
        id: unique in its corpus.
        title, text: in plain words.
    """

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Person:
    """Somebody of the made-up world."""

    name: str
    city: str
    trade: str
    born: int
    book: str


@dataclass(frozen=True)
class World:
    """Everything that the made-up corpus tells; rivers and founders are by city."""

    people: tuple[Person, ...]
    rivers: dict[str, str]
    founded: dict[str, int]


@cache
def world() -> World:
    """The made-up world; always the same."""
    rng = random.Random("search/world")
    names = _names(rng, _CITIES + _RIVERS + 2 * _PEOPLE + _BOOKS)
    cities = [next(names) for _ in range(_CITIES)]
    rivers = [f"River {next(names)}" for _ in range(_RIVERS)]
    people = tuple(
        Person(
            name=f"{next(names)} {next(names)}",
            city=rng.choice(cities),
            trade=rng.choice(_TRADES),
            born=rng.randint(1601, 1899),
            book=f"The {next(names)} Letters",
        )
        for _ in range(_PEOPLE)
    )
    return World(
        people, {city: rng.choice(rivers) for city in cities}, {city: rng.randint(901, 1500) for city in cities}
    )


def made_up_passages() -> list[Passage]:
    """The made-up world as passages, one for each person and city."""
    there = world()
    passages = [
        Passage(
            f"person-{index}",
            person.name,
            f"{person.name} was a {person.trade}, born in the year {person.born} in the city of {person.city}. "
            f"In later years {person.name} wrote the book {person.book}.",
        )
        for index, person in enumerate(there.people)
    ]
    passages += [
        Passage(
            f"city-{index}",
            city,
            f"{city} is a city on the {river}. It was founded in the year {there.founded[city]}. "
            f"Today {city} is known for its markets.",
        )
        for index, (city, river) in enumerate(there.rivers.items())
    ]
    return passages


def read_passages(path: str | Path) -> Iterator[Passage]:
    """Passages of a JSONL file: rows of wiki-18 (`id`, `contents`: a title in quotes, a line end, the text), or with
    the fields `id`, `title`, `text`.

    Raises:
        ConfigError: the file isn't there, or a line has another form.
    """
    if not Path(path).is_file():
        raise ConfigError(f"corpus {path}: no such file")
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield _passage(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"corpus {path}, line {number}: no passage ({error!r})") from None


def _passage(row: dict[str, Any]) -> Passage:
    if "contents" in row:
        title, _, text = str(row["contents"]).partition("\n")
        return Passage(str(row["id"]), title.strip('" '), text)
    return Passage(str(row["id"]), str(row["title"]), str(row["text"]))


def _names(rng: random.Random, count: int) -> Iterator[str]:
    """Different names, no part of another."""
    seen: set[str] = set()
    while len(seen) < count:
        seen.add("".join(rng.choice(_SYLLABLES) for _ in range(3)).capitalize())
    names = sorted(seen)
    rng.shuffle(names)
    return iter(names)
