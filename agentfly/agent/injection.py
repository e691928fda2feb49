"""Fills the parameters that a rollout injects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agentfly.agent.signature import Injection
from agentfly.errors import ConfigError

if TYPE_CHECKING:
    from agentfly.context import Context


def missing_fields(injections: Iterable[Injection], fields: Iterable[str]) -> list[str]:
    """Fields of the task that are asked for, have no default, and are not there."""
    there = set(fields)
    return [
        injection.field
        for injection in injections
        if injection.required and injection.field is not None and injection.field not in there
    ]


def inject(injections: Sequence[Injection], ctx: Context, *, where: str) -> dict[str, Any]:
    """The injected keyword arguments of one call.

    Args:
        injections: of the tool or reward.
        ctx: of the rollout.
        where: how errors name the tool or reward.

    Raises:
        ConfigError: the task lacks a field; `Agent.check` finds that before the first rollout.
    """
    if missing := missing_fields(injections, ctx.task.fields):
        raise ConfigError(
            f"{where} asks for the task field {missing[0]!r}, which task {ctx.task.id!r} lacks; "
            f"its fields are: {', '.join(ctx.task.fields) or 'none'}"
        )
    values: dict[str, Any] = {}
    for injection in injections:
        if injection.field is None:
            values[injection.parameter] = ctx
        elif injection.field in ctx.task.fields:
            values[injection.parameter] = ctx.task.fields[injection.field]
    return values
