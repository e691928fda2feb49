"""A tool: what the model sees of a function, and what happens when it calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol

from agentfly.agent.declaration import Declaration
from agentfly.agent.execution import describe, engine_fault, run_limited
from agentfly.agent.injection import inject
from agentfly.agent.pickling import by_name
from agentfly.agent.results import ToolResult, as_text, cut
from agentfly.agent.signature import Injection
from agentfly.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from agentfly.context import Context
    from agentfly.resources import ResourceSpec


class Tool:
    """A function that a model can call; made by `tool`. Calling it directly calls the function itself.

    Attributes:
        name: as the model writes it.
        description: from the docstring.
        parameters: JSON schema of the arguments that the model sets.
        timeout: seconds that a call may work, queueing for resources not counted; None is no limit.
        max_output: characters of an observation at most.
        terminal: a call that succeeds ends the rollout.
        claims: resources that a call may acquire.
    """

    def __init__(
        self, function: Callable[..., Any], declaration: Declaration, *, receiver: Receiver | None = None
    ) -> None:
        options = declaration.options
        self.name = declaration.name
        self.description = declaration.description
        self.parameters = declaration.arguments.schema
        self.timeout = options.timeout
        self.max_output = options.max_output
        self.terminal = options.terminal
        self.claims: Sequence[ResourceSpec[Any]] = tuple(options.claims)
        self._function = function
        self._declaration = declaration
        self._receiver = receiver
        self._method: tuple[Tool, Any] | None = None
        self.__wrapped__ = function
        self.__module__ = function.__module__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__doc__ = function.__doc__

    @property
    def spec(self) -> dict[str, Any]:
        """The tool in OpenAI form."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @property
    def injections(self) -> tuple[Injection, ...]:
        """Parameters that the rollout fills."""
        return self._declaration.injections

    @property
    def where(self) -> str:
        """The tool as errors name it."""
        return self._declaration.where

    @property
    def bound(self) -> bool:
        """False for a method that was read from its class: it can't be called without an instance."""
        return self._receiver is None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, nothing validated or injected: for the user's own code and tests."""
        return self._function(*args, **kwargs)

    async def call(self, arguments: Mapping[str, Any] | str | None, ctx: Context) -> ToolResult:
        """Carry out a model's call.

        Whatever goes wrong in the arguments or in the function is an observation with `is_error`.

        Args:
            arguments: what the model sent, an object or its JSON text.
            ctx: of the rollout.

        Raises:
            ResourceError, ModelError: the engine's own faults, for the loop to judge.
            ConfigError: the task lacks an injected field, or the method has no instance.
        """
        if not self.bound:
            raise ConfigError(
                f"{self.where} is a method: take it from an instance, as in tools=[board.{self.__name__}]"
            )
        try:
            values = self._declaration.arguments.validate(arguments)
        except ToolError as error:
            return self._error(str(error))
        values.update(inject(self.injections, ctx, where=self.where))
        run = partial(self._run if self._declaration.threaded else self._arun, values)
        try:
            outcome = await run_limited(
                run,
                name=f"tool {self.name}",
                threaded=self._declaration.threaded,
                limit=self.timeout,
                waited=lambda: ctx.waited,
            )
        except TimeoutError:
            return self._error(f"Tool {self.name!r} timed out after {self.timeout:g} seconds")
        if outcome.error is not None:
            return self._failed(outcome.error)
        result: ToolResult = outcome.value
        return result

    def _run(self, values: Mapping[str, Any]) -> ToolResult:
        return self._observe(self._function(**values))

    async def _arun(self, values: Mapping[str, Any]) -> ToolResult:
        return self._observe(await self._function(**values))

    def _observe(self, value: Any) -> ToolResult:
        result = value if isinstance(value, ToolResult) else ToolResult(value)
        return replace(
            result,
            content=cut(as_text(result.content), self.max_output),
            terminal=result.terminal or (self.terminal and not result.is_error),
        )

    def _failed(self, error: BaseException) -> ToolResult:
        if (fault := engine_fault(error)) is not None:
            raise fault
        if isinstance(error, ToolError):
            return self._error(str(error))
        return self._error(f"Tool {self.name!r} failed: {describe(error)}")

    def _error(self, text: str) -> ToolResult:
        return ToolResult(cut(text, self.max_output), is_error=True)

    def __get__(self, instance: Any, owner: type | None = None) -> Tool:
        if self._receiver is None:
            return self
        receiver = self._receiver(instance, owner)
        if receiver is None:
            return self
        bound = Tool(MethodType(self._function, receiver), self._declaration)
        bound._method = (self, receiver)
        return bound

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._method is not None:
            return _bind, self._method
        name = by_name(self)
        return name if name is not None else (Tool, (self._function, self._declaration), {"_receiver": self._receiver})

    def __repr__(self) -> str:
        return f"<{self.where}>"


class Receiver(Protocol):
    """Picks what a method is bound to; None when there is nothing to bind it to."""

    def __call__(self, instance: Any, owner: type | None, /) -> Any: ...


class ToolClass:
    """A class whose instances are tools: constructing it gives a `Tool` that runs its `__call__`."""

    def __init__(self, target: type[Any], declaration: Declaration) -> None:
        self._declaration = declaration
        self.__wrapped__ = target
        self.__module__ = target.__module__
        self.__name__ = target.__name__
        self.__qualname__ = target.__qualname__
        self.__doc__ = target.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Tool:
        """Construct an instance with its class's own arguments."""
        return Tool(self.__wrapped__(*args, **kwargs).__call__, self._declaration)

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = by_name(self)
        return name if name is not None else (ToolClass, (self.__wrapped__, self._declaration))

    def __repr__(self) -> str:
        return f"<class of {self._declaration.where}>"


def _bind(method: Tool, receiver: Any) -> Tool:
    return method.__get__(receiver, receiver if isinstance(receiver, type) else type(receiver))
