"""`@tool`: an ordinary function, method or class becomes something that a model can call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

from agentfly.agent.declaration import ToolOptions, declare
from agentfly.agent.signature import is_method, local_names
from agentfly.agent.tool import Receiver, Tool, ToolClass
from agentfly.errors import ConfigError

if TYPE_CHECKING:
    from agentfly.resources import ResourceSpec


class _Decorator(Protocol):
    @overload
    def __call__(self, target: type[Any], /) -> ToolClass: ...
    @overload
    def __call__(self, target: Callable[..., Any], /) -> Tool: ...


@overload
def tool(target: type[Any], /) -> ToolClass: ...
@overload
def tool(target: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = 60.0,
    max_output: int = 8192,
    terminal: bool = False,
    claims: Sequence[ResourceSpec[Any]] = (),
) -> _Decorator: ...


def tool(
    target: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = 60.0,
    max_output: int = 8192,
    terminal: bool = False,
    claims: Sequence[ResourceSpec[Any]] = (),
) -> Any:
    """Make a tool of a function, a method or a class that defines `__call__`; sync or async.

    The schema comes from the signature, the texts from the docstring (Google style). A parameter `ctx` gets
    the rollout's `Context`; one annotated `Annotated[T, FromTask]` gets a field of the task; the model sees
    neither. Sync functions run in threads. For class and static methods `@tool` stands above the other decorator.

    Args:
        target: the function, method or class; given by the `@tool` form.
        name: as the model sees it; the function's name otherwise.
        description: the docstring's text otherwise.
        timeout: seconds that a call may work; None is no limit.
        max_output: characters of an observation; longer ones are cut in the middle.
        terminal: a call that succeeds ends the rollout.
        claims: resources that a call may acquire.

    Raises:
        ConfigError: the signature can't be offered to a model.
    """
    options = ToolOptions(name, description, timeout, max_output, terminal, claims)
    names = local_names(sys._getframe(1))
    if target is not None:
        return _decorate(target, options, names)
    return lambda wrapped: _decorate(wrapped, options, names)


def _decorate(target: Any, options: ToolOptions, names: Mapping[str, Any]) -> Tool | ToolClass:
    if isinstance(target, (Tool, ToolClass)):
        raise ConfigError(f"{target!r} is a tool already; decorate it once")
    if isinstance(target, type):
        return _decorate_class(target, options, names)
    function: Any = target.__func__ if isinstance(target, (classmethod, staticmethod)) else target
    if not hasattr(function, "__qualname__"):
        raise ConfigError(f"@tool needs a function, a method or a class, got {target!r}")
    receiver = _receiver(target)
    declaration = declare(
        function,
        options,
        label=function.__name__,
        docs=[function.__doc__],
        skip_first=receiver is not None,
        namespace=names,
    )
    return Tool(function, declaration, receiver=receiver)


def _decorate_class(target: type[Any], options: ToolOptions, names: Mapping[str, Any]) -> ToolClass:
    function: Any = getattr(target, "__call__", None)  # noqa: B004  the method itself is wanted
    if not hasattr(function, "__qualname__") or not hasattr(function, "__code__"):
        raise ConfigError(
            f"class {target.__module__}.{target.__qualname__} can't be a tool: it defines no __call__ method"
        )
    declaration = declare(
        function,
        options,
        label=target.__name__,
        docs=[function.__doc__, target.__doc__],
        skip_first=True,
        namespace=names,
    )
    return ToolClass(target, declaration)


def _receiver(target: Any) -> Receiver | None:
    if isinstance(target, classmethod):
        return _the_class
    if not isinstance(target, staticmethod) and is_method(target):
        return _the_instance
    return None


def _the_instance(instance: Any, owner: type | None, /) -> Any:
    return instance


def _the_class(instance: Any, owner: type | None, /) -> Any:
    return owner if owner is not None else type(instance)
