"""Validates what a model sent, and tells it exactly what was wrong."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from agentfly.agent.pickling import settle_annotations
from agentfly.agent.schema import parameters_schema
from agentfly.agent.signature import EMPTY, Argument
from agentfly.errors import ConfigError, ToolError

_MOST_PROBLEMS = 10
_CONFIG = ConfigDict(extra="forbid", coerce_numbers_to_str=True, protected_namespaces=())


class ArgumentModel:
    """The arguments of one tool: their JSON schema and their validation.

    Args:
        tool: the tool's name, for messages to the model.
        arguments: in the order of the signature.
        descriptions: by argument, as far as there are any.
        where: how configuration errors name the tool's function.

    Raises:
        ConfigError: an argument's type has no JSON schema; the line names it.
    """

    def __init__(
        self, tool: str, arguments: Sequence[Argument], descriptions: Mapping[str, str], *, where: str
    ) -> None:
        self._tool = tool
        self._arguments = tuple(arguments)
        self._descriptions = dict(descriptions)
        for argument in self._arguments:
            _check_type(argument, where)
        self._model = self._build()
        self.schema = parameters_schema(self._model)

    def __getstate__(self) -> dict[str, Any]:
        for argument in self._arguments:
            settle_annotations(argument.annotation)
        return {name: value for name, value in self.__dict__.items() if name != "_model"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._model = self._build()  # pydantic's own models of recursive types don't survive the journey

    def validate(self, sent: Mapping[str, Any] | str | None) -> dict[str, Any]:
        """The function's keyword arguments.

        Strings that hold a number, a boolean or a JSON list or object are read as such where the type asks
        for it, since models write them so.

        Args:
            sent: an object, or its JSON text; None and blank text are the empty object.

        Raises:
            ToolError: with every problem, and what is expected, in words for the model.
        """
        values = self._read(sent)
        try:
            return self._convert(values)
        except ValidationError as error:
            return self._validate_unquoted(values, error)
        except Exception as error:  # validators of the user's types, and inputs nested too deep
            raise ToolError(self._message([f"{type(error).__name__}: {_short(str(error))}"])) from error

    def _validate_unquoted(self, values: dict[str, Any], first: ValidationError) -> dict[str, Any]:
        wrong = {str(problem["loc"][0]) for problem in first.errors(include_url=False) if problem["loc"]}
        unquoted = {name: _unquote(value) if name in wrong else value for name, value in values.items()}
        try:
            return self._convert(unquoted)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            raise ToolError(self._message([self._describe(problem) for problem in problems])) from error
        except Exception as error:
            raise ToolError(self._message([f"{type(error).__name__}: {_short(str(error))}"])) from error

    def _read(self, sent: Mapping[str, Any] | str | None) -> dict[str, Any]:
        if sent is None or (isinstance(sent, str) and not sent.strip()):
            return {}
        if isinstance(sent, str):
            try:
                sent = json.loads(sent)
            except (ValueError, RecursionError) as error:
                raise ToolError(self._message([f"they are not valid JSON: {error}"])) from error
        if not isinstance(sent, Mapping):
            raise ToolError(self._message([f"they must be one JSON object, got {_short(sent)}"]))
        return {str(name): value for name, value in sent.items()}

    def _convert(self, values: dict[str, Any]) -> dict[str, Any]:
        model = self._model.model_validate(values)
        return {
            argument.name: getattr(model, _field_name(index))
            for index, argument in enumerate(self._arguments)
            if _field_name(index) in model.model_fields_set or not _has_own_default(argument)
        }

    def _build(self) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for index, argument in enumerate(self._arguments):
            annotation, default = argument.annotation, argument.default
            if isinstance(default, FieldInfo):
                annotation, default = Annotated[annotation, default], default.default
            details: dict[str, Any] = {"alias": argument.name}
            if argument.name in self._descriptions:
                details["description"] = self._descriptions[argument.name]
            if default is not EMPTY and not isinstance(argument.default, FieldInfo):
                details["default"] = default
            # The alias is the name that the model writes; the field's own can't clash with BaseModel's.
            fields[_field_name(index)] = (annotation, Field(**details))
        return create_model("Arguments", __config__=_CONFIG, **fields)

    def _describe(self, problem: ErrorDetails) -> str:
        place = ".".join(str(part) for part in problem["loc"]) or "arguments"
        place = place if len(place) <= 200 else place[:200] + "..."
        if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
            known = ", ".join(argument.name for argument in self._arguments)
            return f"{place}: unknown argument" + (f"; there are only: {known}" if known else "; the tool takes none")
        if problem["type"] == "missing":
            return f"{place}: missing"
        return f"{place}: {problem['msg']}, got {_short(problem['input'])}"

    def _message(self, problems: Sequence[str]) -> str:
        shown = [f"- {problem}" for problem in problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            shown.append(f"- and {len(problems) - _MOST_PROBLEMS} more")
        return "\n".join([f"Wrong arguments for tool {self._tool!r}:", *shown, f"Expected: {self._expected()}"])

    def _expected(self) -> str:
        required = self.schema["required"]
        parts = [
            f"{name} ({type_words(schema)}, {'required' if name in required else 'optional'})"
            for name, schema in self.schema["properties"].items()
        ]
        return "; ".join(parts) or "no arguments"


def type_words(schema: Mapping[str, Any]) -> str:
    """A property's type in a few words: `integer`, `array of string`, `"a" | "b"`, `object with x, y`."""
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(type_words(part) for part in schema[union])
    kind = schema.get("type", "object" if "$ref" in schema else "any value")
    if kind == "array" and schema.get("items"):
        return f"array of {type_words(schema['items'])}"
    if kind == "object" and schema.get("properties"):
        return f"object with {', '.join(schema['properties'])}"
    return str(kind)


def _short(value: Any) -> str:
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 80
    return shortener.repr(value)


def _field_name(index: int) -> str:
    return f"argument_{index}"


def _has_own_default(argument: Argument) -> bool:
    return argument.default is not EMPTY and not isinstance(argument.default, FieldInfo)


def _unquote(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _check_type(argument: Argument, where: str) -> None:
    try:
        TypeAdapter(argument.annotation).json_schema()
    except Exception as error:  # pydantic raises several families, and types may bring hooks of their own
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{where}: parameter {argument.name!r} has type {argument.annotation!r}, which JSON can't carry: {reason}"
        ) from error
