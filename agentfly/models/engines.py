"""Finds engine classes by name: built in, installed by others, or written as `module:Class`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from agentfly.errors import ConfigError
from agentfly.resources.resource import Resource

ENTRY_POINT_GROUP = "agentfly.engines"

_BUILT_IN = {
    "transformers": "agentfly.models.local.engine:LocalEngine",
    "openai": "agentfly.models.openai:OpenAIEngine",
    "scripted": "agentfly.models.scripted:ScriptedEngine",
    "vllm": "agentfly.models.vllm.engine:VllmEngine",
}


def engine_names() -> list[str]:
    """All engines that have a name here."""
    return sorted({*_BUILT_IN, *_installed()})


def engine_class(name: str) -> type[Resource]:
    """The class of an engine.

    Args:
        name: one of `engine_names()`, or `module:Class`. Others add theirs by entry points of the
            group `agentfly.engines`.

    Raises:
        ConfigError: there is no such engine, it can't be imported, or it is none.
    """
    installed = _installed()
    if name in _BUILT_IN:
        found = _import(name, _BUILT_IN[name])
    elif name in installed:
        found = _import(name, installed[name].value)
    elif ":" in name:
        found = _import(name, name)
    else:
        raise ConfigError(f"there is no engine {name!r}: take one of {', '.join(engine_names())}, or module:Class")
    if not (isinstance(found, type) and issubclass(found, Resource)):
        raise ConfigError(f"engine {name!r} is no subclass of agentfly.Resource")
    if not hasattr(found, "generate") and not hasattr(found, "chat"):
        raise ConfigError(f"engine {name!r} has neither generate nor chat: see agentfly.models.engine")
    return found


def engine_arguments(name: str, engine: type[Resource], path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of an engine: its options, and the model's path where it takes one.

    Raises:
        ConfigError: an option that the engine hasn't, or a missing one.
    """
    parameters = inspect.signature(engine).parameters
    arguments = {"path": path} if "path" in parameters else {}
    arguments |= options
    try:
        inspect.signature(engine).bind(**arguments)
    except TypeError as error:
        known = ", ".join(option for option in parameters if option != "path")
        raise ConfigError(f"options of engine {name!r}: {error}; it takes: {known or 'none'}") from error
    return arguments


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _import(name: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"engine {name!r} can't be imported from {module!r}: {error}") from error
    if not hasattr(found, attribute):
        raise ConfigError(f"engine {name!r}: module {module!r} has no {attribute!r}")
    return getattr(found, attribute)
