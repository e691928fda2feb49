"""Reads a tool's parameters: what the model sets, and what the rollout injects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, Final, get_args, get_type_hints

from agentfly.context.task import FromTask
from agentfly.errors import ConfigError

CONTEXT_PARAMETER: Final = "ctx"
EMPTY: Final = inspect.Parameter.empty
_RECEIVERS = ("self", "cls")


@dataclass(frozen=True)
class Argument:
    """A parameter that the model sets.

    Attributes:
        name: as the model writes it.
        annotation: its resolved type.
        default: the function's own default; `EMPTY` when there is none.
    """

    name: str
    annotation: Any
    default: Any


@dataclass(frozen=True)
class Injection:
    """A parameter that the rollout fills.

    Attributes:
        parameter: its name.
        field: the task's field that it takes; None for the context.
        required: whether the function has no default for it.
    """

    parameter: str
    field: str | None
    required: bool


@dataclass(frozen=True)
class Signature:
    """A tool's parameters, each on its side.

    Attributes:
        arguments: set by the model.
        injections: filled by the rollout, unknown to the model.
    """

    arguments: tuple[Argument, ...]
    injections: tuple[Injection, ...]


def is_method(function: Callable[..., Any]) -> bool:
    """Whether the function was defined in a class body and expects its instance (or class) first."""
    scope, _, _ = function.__qualname__.rpartition(".")
    first = next(iter(inspect.signature(function).parameters), None)
    return bool(scope) and not scope.endswith("<locals>") and first in _RECEIVERS


def read_signature(
    function: Callable[..., Any], *, where: str, skip_first: bool, namespace: Mapping[str, Any]
) -> Signature:
    """Split a function's parameters into the model's and the rollout's.

    Args:
        function: read, never called.
        where: how errors name it.
        skip_first: the first parameter is the receiver.
        namespace: names that string annotations may use besides the function's globals.

    Raises:
        ConfigError: a parameter can't be offered to a model; the line names it.
    """
    inner = inspect.unwrap(function)
    scope = {**getattr(inner, "__globals__", {})}
    parameters = list(inspect.signature(function).parameters.values())[1 if skip_first else 0 :]
    arguments: list[Argument] = []
    injections: list[Injection] = []
    for parameter in parameters:
        check_kind(parameter, where)
        required = parameter.default is EMPTY
        if parameter.name == CONTEXT_PARAMETER:
            injections.append(Injection(parameter.name, None, required))
            continue
        annotation = _resolve(parameter, where, scope, namespace)
        field = _task_field(parameter.name, annotation, where)
        if field is not None:
            injections.append(Injection(parameter.name, field, required))
        else:
            arguments.append(Argument(parameter.name, annotation, parameter.default))
    return Signature(tuple(arguments), tuple(injections))


def local_names(frame: FrameType) -> dict[str, Any]:
    """Names visible where a decorator runs, the function around a class body included."""
    names: dict[str, Any] = {}
    if _is_class_body(frame) and frame.f_back is not None:
        names.update(frame.f_back.f_locals)
    names.update(frame.f_locals)
    return names


def _is_class_body(frame: FrameType) -> bool:
    code: CodeType = frame.f_code
    return not code.co_flags & inspect.CO_OPTIMIZED and frame.f_locals is not frame.f_globals


def check_kind(parameter: inspect.Parameter, where: str) -> None:
    """Raise ConfigError for a parameter that can't be passed by name."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ConfigError(f"{where}: parameter {stars}{parameter.name} can't be filled; name each parameter")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ConfigError(
            f"{where}: parameter {parameter.name!r} is positional-only, but arguments are passed by name; remove '/'"
        )


def _resolve(parameter: inspect.Parameter, where: str, scope: dict[str, Any], namespace: Mapping[str, Any]) -> Any:
    if parameter.annotation is EMPTY:
        raise ConfigError(f"{where}: parameter {parameter.name!r} has no type annotation; the model's schema needs one")
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(holder, scope, dict(namespace), include_extras=True)[parameter.name]
    except Exception as error:  # an annotation is code of the user's and may raise anything
        raise ConfigError(
            f"{where}: parameter {parameter.name!r} has an annotation {parameter.annotation!r} that fails: {error}"
        ) from error


def _task_field(name: str, annotation: Any, where: str) -> str | None:
    """The task's field that the annotation asks for; None for an argument of the model's."""
    for mark in getattr(annotation, "__metadata__", ()):
        if mark is FromTask:
            return name
        if isinstance(mark, FromTask):
            return mark.name if mark.name is not None else name
    if _mentions_task(annotation):
        raise ConfigError(
            f"{where}: parameter {name!r} has FromTask inside its type, where it would not be injected; "
            "write Annotated[<the whole type>, FromTask]"
        )
    return None


def _mentions_task(annotation: Any) -> bool:
    if annotation is FromTask or isinstance(annotation, FromTask):
        return True
    marks = getattr(annotation, "__metadata__", ())
    return any(_mentions_task(part) for part in (*get_args(annotation), *marks))
