"""`@reward`: how good was a rollout."""

from __future__ import annotations

import asyncio
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, overload

from agentfly.agent.declaration import check_timeout
from agentfly.agent.execution import describe, engine_fault, run_limited
from agentfly.agent.injection import inject, missing_fields
from agentfly.agent.pickling import by_name
from agentfly.agent.results import cut, plain_metrics, plain_number
from agentfly.agent.signature import EMPTY, Injection, check_kind, is_method
from agentfly.errors import ConfigError, ModelError, ResourceError, RewardError

if TYPE_CHECKING:
    from agentfly.context import Context

_GIVEN: Final = frozenset({"final_response", "trajectory", "ctx", "task"})
_LONGEST_ERROR: Final = 2000


@dataclass(frozen=True)
class RewardResult:
    """A reward, and numbers beside it.

    Attributes:
        value: finite.
        metrics: for the rollout's metrics.
    """

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)


class Reward(ABC):
    """Scores a finished rollout; made by `reward` and `weighted`.

    Attributes:
        name: in metrics and errors.
    """

    name: str

    @abstractmethod
    def missing(self, fields: Iterable[str]) -> list[str]:
        """Fields of the task that it asks for, without default, and that are not among `fields`."""

    @abstractmethod
    async def __call__(self, *, final_response: str, trajectory: object, ctx: Context) -> RewardResult:
        """Score a rollout.

        Args:
            final_response: text of the last assistant message.
            trajectory: the whole rollout.
            ctx: of the rollout, which still holds its resources.

        Raises:
            RewardError: it raised, took too long, or gave no finite number.
            ResourceError, ModelError: the engine's own faults, for the loop to judge.
        """


class FunctionReward(Reward):
    """A reward that is one function.

    Attributes:
        function: as the user wrote it, for calls with plain arguments.
        timeout: seconds of work; None is no limit.
    """

    def __init__(self, function: Callable[..., Any], *, name: str, timeout: float | None) -> None:
        self.name = name
        self.function = function
        self.timeout = timeout
        self.__wrapped__ = function
        self.__module__ = function.__module__
        self.__qualname__ = function.__qualname__
        self.__doc__ = function.__doc__
        self._where = f"reward {name!r}"
        check_timeout(timeout, self._where)
        self._given, self._injections = _read_parameters(function, self._where)
        self._threaded = not (
            inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inspect.unwrap(function))
        )

    def missing(self, fields: Iterable[str]) -> list[str]:
        return missing_fields(self._injections, fields)

    async def __call__(self, *, final_response: str, trajectory: object, ctx: Context) -> RewardResult:
        offered = {"final_response": final_response, "trajectory": trajectory, "ctx": ctx, "task": ctx.task}
        values = {name: offered[name] for name in self._given}
        values.update(inject(self._injections, ctx, where=self._where))
        try:
            outcome = await run_limited(
                partial(self.function, **values),
                name=self._where,
                threaded=self._threaded,
                limit=self.timeout,
                waited=lambda: ctx.waited,
            )
        except TimeoutError:
            raise RewardError(f"{self._where} took longer than {self.timeout:g} seconds") from None
        if outcome.error is not None:
            if (fault := engine_fault(outcome.error)) is not None:
                raise fault
            raise RewardError(cut(f"{self._where} raised {describe(outcome.error)}", _LONGEST_ERROR)) from outcome.error
        return self._result(outcome.value)

    def _result(self, value: Any) -> RewardResult:
        given = value if isinstance(value, RewardResult) else RewardResult(value)
        try:
            result = RewardResult(plain_number(given.value, "its value"), plain_metrics(given.metrics))
        except (TypeError, OverflowError) as error:
            raise RewardError(f"{self._where} returned no number: {error}") from error
        if not math.isfinite(result.value):
            raise RewardError(f"{self._where} returned {result.value}; it must be finite")
        return result

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = by_name(self)
        return name if name is not None else (_revive, (self.function, self.name, self.timeout))

    def __repr__(self) -> str:
        return f"<{self._where} ({self.__module__}.{self.__qualname__})>"


class WeightedReward(Reward):
    """The weighted sum of several rewards, computed side by side."""

    def __init__(self, parts: Mapping[Reward, float], *, name: str) -> None:
        self.name = name
        self._parts = tuple(parts.items())
        if not self._parts:
            raise ConfigError(f"reward {name!r} has no parts; give weighted() at least one")
        for part, weight in self._parts:
            _check_part(name, part, weight)
        names = [part.name for part, _ in self._parts]
        if repeated := sorted({each for each in names if names.count(each) > 1}):
            raise ConfigError(f"reward {name!r} has several parts named {repeated[0]!r}; set @reward(name=...)")

    def missing(self, fields: Iterable[str]) -> list[str]:
        there = tuple(fields)
        return [name for part, _ in self._parts for name in part.missing(there)]

    async def __call__(self, *, final_response: str, trajectory: object, ctx: Context) -> RewardResult:
        calls = [part(final_response=final_response, trajectory=trajectory, ctx=ctx) for part, _ in self._parts]
        results = _all_or_raise(await asyncio.gather(*calls, return_exceptions=True))
        metrics: dict[str, float] = {}
        for (part, _), result in zip(self._parts, results, strict=True):
            metrics.update(result.metrics)
            metrics[part.name] = result.value
        value = sum(weight * result.value for (_, weight), result in zip(self._parts, results, strict=True))
        return RewardResult(value, metrics)

    def __repr__(self) -> str:
        return f"<reward {self.name!r} of {', '.join(part.name for part, _ in self._parts)}>"


@overload
def reward(function: Callable[..., Any], /) -> FunctionReward: ...
@overload
def reward(
    *, name: str | None = None, timeout: float | None = 300.0
) -> Callable[[Callable[..., Any]], FunctionReward]: ...


def reward(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, timeout: float | None = 300.0
) -> Any:
    """Make a reward of a sync or async function.

    Its parameters are filled by name: `final_response`, `trajectory`, `ctx`, `task`, and any field of the
    task; a field that has a default may be absent. It returns a finite number or a `RewardResult`. Sync
    functions run in threads.

    Args:
        function: given by the `@reward` form.
        name: in metrics and errors; the function's name otherwise.
        timeout: seconds of work, queueing for resources not counted; None is no limit.

    Raises:
        ConfigError: the signature can't be filled by name.
    """

    def decorate(target: Callable[..., Any]) -> FunctionReward:
        if isinstance(target, (Reward, type)) or not hasattr(target, "__qualname__"):
            raise ConfigError(f"@reward needs a function, got {target!r}")
        return FunctionReward(target, name=name if name is not None else target.__name__, timeout=timeout)

    return decorate if function is None else decorate(function)


def weighted(parts: Mapping[Reward, float], *, name: str = "weighted") -> Reward:
    """The weighted sum of rewards; the value of each stands in the metrics under its name.

    Args:
        parts: rewards and their weights, which need not add up to 1.
        name: in errors, and in metrics where this one is itself a part.

    Raises:
        ConfigError: no parts, two of one name, a part that is no reward, a weight that is no finite number.
    """
    return WeightedReward(parts, name=name)


def _read_parameters(function: Callable[..., Any], where: str) -> tuple[tuple[str, ...], tuple[Injection, ...]]:
    if is_method(function):
        raise ConfigError(f"{where} is a method; make a reward of the bound one: reward(instance.{function.__name__})")
    given: list[str] = []
    injections: list[Injection] = []
    for parameter in inspect.signature(function).parameters.values():
        check_kind(parameter, where)
        if parameter.name in _GIVEN:
            given.append(parameter.name)
        else:
            injections.append(Injection(parameter.name, parameter.name, parameter.default is EMPTY))
    return tuple(given), tuple(injections)


def _check_part(name: str, part: object, weight: object) -> None:
    if not isinstance(part, Reward):
        raise ConfigError(f"reward {name!r}: {part!r} is no reward; decorate it with @reward")
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight):
        raise ConfigError(f"reward {name!r}: the weight of {part.name!r} must be a finite number, got {weight!r}")


def _all_or_raise(results: Sequence[RewardResult | BaseException]) -> list[RewardResult]:
    """The results; else an error, the engine's before any other, since it voids the others."""
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise next((error for error in errors if isinstance(error, (ResourceError, ModelError))), errors[0])
    return [result for result in results if isinstance(result, RewardResult)]


def _revive(function: Callable[..., Any], name: str, timeout: float | None) -> FunctionReward:
    return FunctionReward(function, name=name, timeout=timeout)
