"""What `@tool` reads from a function, once, when it is decorated."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import docstring_parser

from agentfly.agent.arguments import ArgumentModel
from agentfly.agent.signature import Injection, read_signature
from agentfly.errors import ConfigError

if TYPE_CHECKING:
    from agentfly.resources import ResourceSpec

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_LEAST_OUTPUT: Final = 100


class Arguments(Protocol):
    """What a model sends to a tool.

    Attributes:
        schema: JSON schema of it, an object.
    """

    schema: dict[str, Any]

    def validate(self, sent: Mapping[str, Any] | str | None) -> dict[str, Any]:
        """The function's keyword arguments.

        Raises:
            ToolError: what was sent is wrong, in words for the model.
        """
        ...


@dataclass(frozen=True)
class ToolOptions:
    """What the user may set beside the function; see `tool`."""

    name: str | None = None
    description: str | None = None
    timeout: float | None = 60.0
    max_output: int = 8192
    terminal: bool = False
    claims: Sequence[ResourceSpec[Any]] = ()


@dataclass(frozen=True)
class Declaration:
    """Everything about a tool but the code it runs.

    Attributes:
        name, description: as the model sees them.
        options: checked.
        arguments: schema and validation of what the model sends.
        injections: what the rollout fills.
        threaded: the function blocks and runs in a thread.
        where: how configuration errors name the tool.
    """

    name: str
    description: str
    options: ToolOptions
    arguments: Arguments
    injections: tuple[Injection, ...]
    threaded: bool
    where: str


def declare(
    function: Callable[..., Any],
    options: ToolOptions,
    *,
    label: str,
    docs: Sequence[str | None],
    skip_first: bool,
    namespace: Mapping[str, Any],
) -> Declaration:
    """Read a function's name, docstrings and signature.

    Args:
        function: what a call runs.
        options: of the decorator.
        label: the name that the model sees unless the options have one.
        docs: docstrings, Google style; the first that has a thing counts.
        skip_first: the first parameter is the receiver.
        namespace: local names that annotations may use.

    Raises:
        ConfigError: one line that names the function and the parameter.
    """
    name = options.name if options.name is not None else label
    where = f"tool {name!r} ({function.__module__}.{function.__qualname__})"
    _check_options(name, options, where)
    inner = inspect.unwrap(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(f"{where} yields; a tool returns its result in one piece")
    parsed = [docstring_parser.parse(doc, style=docstring_parser.DocstringStyle.GOOGLE) for doc in docs if doc]
    descriptions = [text for text in (_description(doc) for doc in parsed) if text]
    signature = read_signature(function, where=where, skip_first=skip_first, namespace=namespace)
    return Declaration(
        name=name,
        description=options.description if options.description is not None else next(iter(descriptions), ""),
        options=options,
        arguments=ArgumentModel(name, signature.arguments, _parameter_texts(parsed), where=where),
        injections=signature.injections,
        # A sync wrapper (functools.wraps) of an async function gives a coroutine, and that belongs on the loop.
        threaded=not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)),
        where=where,
    )


def _check_options(name: str, options: ToolOptions, where: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: a name is a letter, then up to 63 letters, digits, '_', '.' or '-'; set name=")
    check_timeout(options.timeout, where)
    if not isinstance(options.max_output, int) or options.max_output < _LEAST_OUTPUT:
        raise ConfigError(f"{where}: max_output must be {_LEAST_OUTPUT} characters or more, got {options.max_output!r}")


def check_timeout(timeout: float | None, where: str) -> None:
    """Raise ConfigError unless it is None or a positive number of seconds."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise ConfigError(f"{where}: timeout must be a positive number of seconds, or None for none, got {timeout!r}")


def _description(doc: docstring_parser.Docstring) -> str:
    return "\n\n".join(part for part in (doc.short_description, doc.long_description) if part)


def _parameter_texts(parsed: Sequence[docstring_parser.Docstring]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for doc in parsed:
        for parameter in doc.params:
            if parameter.description:
                texts.setdefault(parameter.arg_name, " ".join(parameter.description.split()))
    return texts
