"""Finds what `module:attribute` or `file.py:attribute` names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from ray import cloudpickle

from agentfly.agent.agent import Agent
from agentfly.agent.execution import describe
from agentfly.errors import ConfigError


def load_agent(reference: str, *, folder: Path | None = None) -> Agent:
    """The agent that a reference names.

    Args:
        reference: `module:attribute`, or `file.py:attribute`.
        folder: that file paths are relative to, and where modules are looked for first; the working
            directory otherwise.

    Raises:
        ConfigError: nothing is there, it can't be imported, or it is no agent.
    """
    found = load_object(reference, folder=folder)
    if not isinstance(found, Agent):
        raise ConfigError(f"{reference!r} must name an Agent, found {type(found).__name__}")
    return found


def load_object(reference: str, *, folder: Path | None = None) -> Any:
    """The object that a reference names; dots in the attribute go deeper.

    A file's module is sent to workers by value, since they can't import it by name.

    Raises:
        ConfigError: nothing is there, or it can't be imported.
    """
    source, colon, attribute = reference.rpartition(":")
    if not colon or not source or not attribute:
        raise ConfigError(f"{reference!r} must be 'module:attribute' or 'file.py:attribute'")
    place = (folder or Path.cwd()).resolve()
    try:
        module = _from_file(place / source) if source.endswith(".py") else _from_name(source, place)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # importing runs the user's code
        raise ConfigError(f"{source!r} can't be imported: {_told(error)}") from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = ", ".join(name for name in vars(module) if not name.startswith("_")) or "nothing"
            raise ConfigError(f"{source!r} has no attribute {attribute!r}; it has: {names}")
        found = getattr(found, part)
    return found


def _told(error: BaseException) -> str:
    """Type, first line of the message, and the line of code, unless the message itself names it."""
    said = next(iter(describe(error).splitlines()))
    frame = next(reversed(traceback.extract_tb(error.__traceback__)), None)
    if frame is None or isinstance(error, SyntaxError):
        return said
    return f"{said} ({frame.filename}, line {frame.lineno})"


def _from_name(name: str, folder: Path) -> ModuleType:
    _search_first(folder)
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    # Two files called agent.py must not be taken for one module.
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} can't be read as a Python module")
    _search_first(path.parent)  # as Python does for a script, so that the file may import its neighbours
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    cloudpickle.register_pickle_by_value(module)
    return module


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
