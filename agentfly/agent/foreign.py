"""Tools of other libraries, which bring their JSON schema along instead of a Python signature."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentfly.agent.declaration import Declaration, ToolOptions
from agentfly.agent.signature import CONTEXT_PARAMETER, Injection
from agentfly.agent.tool import Tool
from agentfly.errors import ToolError

if TYPE_CHECKING:
    from agentfly.resources import ResourceSpec

_LEAST_OUTPUT = 100


class SchemaArguments:
    """Arguments that are handed over as they were sent, as one object; checking them is the function's matter.

    Args:
        tool: the tool's name, for messages to the model.
        schema: JSON schema of an object.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self.schema = dict(schema)
        self._tool = tool

    def validate(self, sent: Mapping[str, Any] | str | None) -> dict[str, Any]:
        """The object, as the function's one argument `arguments`.

        Raises:
            ToolError: it is no JSON object.
        """
        if isinstance(sent, str):
            try:
                sent = json.loads(sent) if sent.strip() else {}
            except (ValueError, RecursionError) as error:
                raise ToolError(f"Wrong arguments for tool {self._tool!r}: they are not valid JSON: {error}") from error
        if sent is not None and not isinstance(sent, Mapping):
            raise ToolError(f"Wrong arguments for tool {self._tool!r}: they must be one JSON object")
        return {"arguments": dict(sent or {})}


def foreign_tool(
    function: Callable[..., Any],
    *,
    name: str,
    description: str,
    schema: Mapping[str, Any],
    threaded: bool,
    timeout: float | None = None,
    max_output: int = 8192,
    claims: Sequence[ResourceSpec[Any]] = (),
) -> Tool:
    """A tool of a function that takes what the model sent as one object.

    Args:
        function: called as `function(arguments=..., ctx=...)`.
        name, description, schema: as the model sees them.
        threaded: the function blocks; else it is a coroutine function.
        timeout: seconds that a call may work; None is no limit.
        max_output: characters of an observation; at least 100.
        claims: resources that a call may acquire.
    """
    options = ToolOptions(name, description, timeout, max(_LEAST_OUTPUT, max_output), claims=claims)
    where = f"tool {name!r} ({function.__module__}.{function.__qualname__})"
    injections = (Injection(CONTEXT_PARAMETER, None, True),)
    arguments = SchemaArguments(name, schema)
    return Tool(function, Declaration(name, description, options, arguments, injections, threaded, where))
