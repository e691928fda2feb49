"""The schema that a model sees, from the signature and the docstring."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

import agentfly.agent as af
from agentfly.context import Context, FromTask
from agentfly.errors import ConfigError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Book(BaseModel):
    title: str
    pages: list[int] = []


@dataclasses.dataclass
class Shelf:
    books: list[Book]
    name: str = "top"


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


def property_of(tool: af.Tool, name: str) -> dict[str, Any]:
    schema: dict[str, Any] = tool.parameters["properties"][name]
    return schema


def test_names_texts_and_required_come_from_the_function() -> None:
    @af.tool
    def search(query: str, limit: int = 5) -> str:
        """Search the shelves.

        Finds books by their titles.

        Args:
            query: words of the title, in any
                order.
            limit: most books to list.

        Returns:
            Titles.
        """
        return query * limit

    assert search.spec == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the shelves.\n\nFinds books by their titles.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "words of the title, in any order."},
                    "limit": {"type": "integer", "default": 5, "description": "most books to list."},
                },
                "required": ["query"],
            },
        },
    }


def test_options_override_the_function() -> None:
    @af.tool(name="look-up", description="Look it up.", timeout=None, max_output=100, terminal=True)
    def search(query: str) -> str:
        """Search."""
        return query

    assert (search.name, search.description) == ("look-up", "Look it up.")
    assert (search.timeout, search.max_output, search.terminal) == (None, 100, True)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045  the older spelling, too
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (list[float], {"type": "array", "items": {"type": "number"}}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (Annotated[int, Field(ge=1, description="one or more")], {"type": "integer", "minimum": 1}),
        (Any, {}),
    ],
)
def test_types(annotation: Any, expected: dict[str, Any]) -> None:
    def function(value):  # type: ignore[no-untyped-def]
        return value

    function.__annotations__["value"] = annotation
    schema = property_of(af.tool(function), "value")
    schema.pop("description", None)
    assert schema == expected


def test_nested_types_stand_in_place_without_titles() -> None:
    @af.tool
    def store(shelf: Shelf, extra: Book | None = None) -> None:
        """Store."""

    assert "$" not in json.dumps(store.parameters)
    book = property_of(store, "shelf")["properties"]["books"]["items"]
    assert book["properties"]["title"] == {"type": "string"}, "a property named title is no noise"
    assert "title" not in book
    assert book["required"] == ["title"]
    assert property_of(store, "extra")["anyOf"] == [book, {"type": "null"}]


def test_a_recursive_type_keeps_its_reference() -> None:
    @af.tool
    def plant(tree: Tree) -> None:
        """Plant."""

    assert property_of(plant, "tree") == {"$ref": "#/$defs/Tree"}
    assert plant.parameters["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


def test_names_that_pydantic_claims_are_free() -> None:
    @af.tool
    def odd(schema: int, model_config: str, json: str, copy: bool, _hidden: int = 1) -> None:
        """Odd names."""

    assert list(odd.parameters["properties"]) == ["schema", "model_config", "json", "copy", "_hidden"]


def test_what_the_rollout_fills_is_not_in_the_schema() -> None:
    @af.tool
    def move(
        uci: str, ctx: Context, fen: Annotated[str, FromTask], goal: Annotated[str, FromTask("answer")] = ""
    ) -> str:
        """Move.

        Args:
            uci: the move.
            ctx: secret.
            fen: secret.
        """
        return uci + fen + goal

    assert list(move.parameters["properties"]) == ["uci"]
    assert "secret" not in json.dumps(move.spec)
    assert [(each.parameter, each.field, each.required) for each in move.injections] == [
        ("ctx", None, True),
        ("fen", "fen", True),
        ("goal", "answer", False),
    ]


def test_ctx_needs_no_resolvable_annotation() -> None:
    @af.tool
    def look(ctx: OnlyForTypeCheckers) -> str:  # type: ignore[name-defined]  # noqa: F821
        """Look."""
        return ""

    assert look.parameters["properties"] == {}


def test_local_types_resolve() -> None:
    class Local(BaseModel):
        x: int

    class Holder:
        Inner = Literal["in"]

        @af.tool
        def method(self, local: Local, inner: Inner) -> None:
            """Take both."""

    assert list(property_of(Holder.method, "local")["properties"]) == ["x"]
    assert property_of(Holder.method, "inner")["const"] == "in"


def test_a_default_that_json_cannot_write_is_left_out() -> None:
    @af.tool
    def odd(where: Path = Path("here"), what: int = Field(3, ge=0)) -> None:
        """Odd defaults."""

    assert odd.parameters["required"] == []
    assert property_of(odd, "what") == {"type": "integer", "default": 3, "minimum": 0}


def unannotated(x):  # type: ignore[no-untyped-def]
    return x


def starred(*values: int) -> None: ...


def double_starred(**values: int) -> None: ...


def positional(x: int, /) -> None: ...


def unserialisable(x: Callable[[], int]) -> None: ...


def arbitrary(x: object, y: Context) -> None: ...


def unknown(x: NoSuchType) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def buried(x: list[Annotated[str, FromTask]]) -> None: ...


@pytest.mark.parametrize(
    ("function", "parameter", "reason"),
    [
        (unannotated, "'x'", "annotation"),
        (starred, "*values", "name each"),
        (double_starred, "**values", "name each"),
        (positional, "'x'", "positional-only"),
        (unserialisable, "'x'", "JSON"),
        (arbitrary, "'y'", "JSON"),
        (unknown, "'x'", "NoSuchType"),
        (buried, "'x'", "FromTask"),
    ],
)
def test_a_bad_parameter_is_one_line_at_decoration(function: Callable[..., Any], parameter: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        af.tool(function)
    line = str(caught.value)
    assert all(words in line for words in (function.__name__, parameter, reason))
    assert "\n" not in line


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": "two words"}, "name"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"max_output": 5}, "max_output"),
    ],
)
def test_a_bad_option_is_an_error_at_decoration(options: dict[str, Any], reason: str) -> None:
    def function() -> None: ...

    with pytest.raises(ConfigError, match=reason):
        af.tool(**options)(function)


def test_other_things_than_functions_are_refused() -> None:
    @af.tool
    def once() -> None:
        """Once."""

    def generates():  # type: ignore[no-untyped-def]
        yield 1

    class Silent:
        pass

    wrongs: list[tuple[Any, str]] = [(once, "already"), (generates, "yields"), (Silent, "__call__"), (3, "function")]
    for wrong, reason in wrongs:
        with pytest.raises(ConfigError, match=reason):
            af.tool(wrong)
