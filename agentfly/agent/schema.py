"""JSON schemas as models like them: no titles, no references but recursive ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

_NAMED_SCHEMAS = ("properties", "patternProperties")
_PLAIN_VALUES = ("default", "const", "enum", "examples", "required")
_DROPPED = ("title", "$defs", "discriminator")
_PREFIX = "#/$defs/"


class _Generator(GenerateJsonSchema):
    # A default that JSON can't write is left out of the schema; the function still has it.
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  as pydantic has it


def parameters_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a tool's arguments, an object whose properties are the model's fields.

    Raises:
        pydantic.errors.PydanticUserError: a field has no JSON schema.
    """
    raw = model.model_json_schema(schema_generator=_Generator)
    definitions: dict[str, Any] = raw.get("$defs", {})
    recursive = {name for name in definitions if name in _reachable(definitions[name], definitions)}
    cleaned = _clean(raw, definitions, recursive)
    schema = {
        "type": "object",
        "properties": cleaned.get("properties", {}),
        "required": cleaned.get("required", []),
    }
    used = {name for name in _reachable(raw, definitions) if name in recursive}
    if used:
        schema["$defs"] = {name: _clean(definitions[name], definitions, recursive) for name in sorted(used)}
    return schema


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_PREFIX)
        for key, value in node.items():
            if key in _NAMED_SCHEMAS:
                yield from _references(list(value.values()))
            elif key not in _DROPPED and key not in _PLAIN_VALUES:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _reachable(node: Any, definitions: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = list(_references(node))
    while waiting:
        name = waiting.pop()
        if name not in found and name in definitions:
            found.add(name)
            waiting.extend(_references(definitions[name]))
    return found


def _clean(node: Any, definitions: Mapping[str, Any], recursive: set[str]) -> Any:
    if isinstance(node, list):
        return [_clean(value, definitions, recursive) for value in node]
    if not isinstance(node, Mapping):
        return node
    cleaned: dict[str, Any] = {}
    reference = node.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix(_PREFIX)
        if name in recursive:
            cleaned["$ref"] = reference
        else:
            cleaned.update(_clean(definitions[name], definitions, recursive))
    for key, value in node.items():
        if key in _DROPPED or key == "$ref":
            continue
        if key in _NAMED_SCHEMAS:
            # Here the keys are names of the user's, "title" among them perhaps.
            cleaned[key] = {name: _clean(schema, definitions, recursive) for name, schema in value.items()}
        elif key in _PLAIN_VALUES:
            cleaned[key] = value
        else:
            cleaned[key] = _clean(value, definitions, recursive)
    return cleaned
