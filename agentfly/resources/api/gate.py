"""Lets the calls of an API go out as its limits allow, and tries again what the API refuses."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar, cast

from agentfly.errors import BudgetSpent, RateLimited, first_line
from agentfly.resources.api.bill import ApiUsage, Bill, Charge
from agentfly.resources.api.limiter import Limiter
from agentfly.resources.api.limits import ApiLimits
from agentfly.resources.api.pushback import pushback
from agentfly.resources.phases import queueing

T = TypeVar("T")
_AGAIN = object()
_END = object()
_charge: ContextVar[Charge | None] = ContextVar("agentfly_charge", default=None)


def charge(*, input_tokens: int = 0, output_tokens: int = 0, cost: float = 0.0) -> None:
    """Say what the API call in progress has come to; several add up. Where nothing is limited, nothing happens.

    Args:
        input_tokens, output_tokens: count for the rate and, by the spec's prices, for the cost.
        cost: beside that, in the currency of the prices.
    """
    if (current := _charge.get()) is not None:
        current.input_tokens += input_tokens
        current.output_tokens += output_tokens
        current.cost += cost


class Gate:
    """One for each API, in one process: what it learns from one call holds for all.

    Args:
        where: the API, for errors.
        limits: of it.
        refusal: finds the refusal in what a call raised; gets the seconds since the epoch.
    """

    def __init__(
        self,
        where: str,
        limits: ApiLimits,
        refusal: Callable[[BaseException, float], RateLimited | None] = pushback,
    ) -> None:
        self._where = where
        self._refusal = refusal
        self._limiter = Limiter(limits, random.Random())
        self._bill = Bill(where, limits)
        self._numbers = itertools.count()
        self._turns: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def usage(self) -> ApiUsage:
        """Totals, and what there is at this moment."""
        return replace(self._bill.usage, waiting=self._limiter.waiting, under_way=self._limiter.under_way)

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do a piece of work when its turn has come; again, when the API refuses it for its rate.

        Raises:
            RateLimited: the API goes on refusing, or wants to be left alone for too long.
            BudgetSpent: no further call goes out.
            Exception: what the work raised.
        """
        number = self._ask()
        while True:
            await self._turn(number)
            if (value := await self._attempt(number, work)) is not _AGAIN:
                return cast(T, value)

    async def stream(self, start: Callable[[], AsyncGenerator[T]]) -> AsyncIterator[T]:
        """As `call`, for an asynchronous generator; after its first item it isn't tried again."""
        number = self._ask()
        while True:
            await self._turn(number)
            items, spent, began = start(), Charge(), False
            try:
                while (item := await _next(items, spent)) is not _END:
                    began = True
                    yield cast(T, item)
            except Exception as error:
                if self._failed(number, spent, error, retry=not began):
                    continue
                raise
            except BaseException:  # whoever reads it has gone, or was cancelled
                self._abandoned(number, spent)
                raise
            finally:
                await items.aclose()
            self._answered(number, spent)
            return

    # Inside

    def _ask(self) -> int:
        self._bill.check()
        if (refused := self._left_alone()) is not None:
            raise refused
        number = next(self._numbers)
        self._limiter.ask(number)
        self._turns[number] = asyncio.get_running_loop().create_future()
        self._pump()
        return number

    async def _turn(self, number: int) -> None:
        turn = self._turns[number]
        try:
            if not turn.done():
                with queueing():
                    await turn
            turn.result()
            self._bill.begin()
        except BaseException:
            self._limiter.withdraw(number)
            self._pump()
            raise
        finally:
            self._turns.pop(number, None)

    async def _attempt(self, number: int, work: Callable[[], Awaitable[Any]]) -> Any:
        spent = Charge()
        token = _charge.set(spent)
        try:
            value = await work()
        except Exception as error:
            if self._failed(number, spent, error, retry=True):
                return _AGAIN
            raise
        except BaseException:
            self._abandoned(number, spent)
            raise
        finally:
            _charge.reset(token)
        self._answered(number, spent)
        return value

    def _answered(self, number: int, spent: Charge) -> None:
        self._bill.end(spent)
        self._limiter.answered(number, spent.tokens)
        self._pump()

    def _abandoned(self, number: int, spent: Charge) -> None:
        self._bill.end(spent)
        self._limiter.withdraw(number)
        self._pump()

    def _failed(self, number: int, spent: Charge, error: Exception, *, retry: bool) -> bool:
        """A call raised; returns whether it waits for another turn.

        Raises:
            RateLimited: it won't get one.
        """
        refusal = self._refusal(error, time.time())
        if refusal is None:
            self._answered(number, spent)
            return False
        self._bill.refused()
        again = self._limiter.refused(number, refusal.retry_after, asyncio.get_running_loop().time())
        if again and retry:
            self._turns[number] = asyncio.get_running_loop().create_future()
        elif again:
            self._limiter.withdraw(number)
        self._pump()
        if not (again and retry):
            text = f"{self._where} goes on refusing calls for their rate: {first_line(error)}"
            raise RateLimited(text, refusal.retry_after) from error
        return True

    def _pump(self) -> None:
        """Let go whose turn it is; refuse all if no call can go out; be back when the next may."""
        loop = asyncio.get_running_loop()
        if (refused := self._refused_to_all()) is not None:
            self._refuse_all(refused)
        for number in self._limiter.admit(loop.time()):
            if not (turn := self._turns[number]).done():
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        ready = self._limiter.ready_at()
        self._timer = None if ready is None else loop.call_at(ready, self._pump)

    def _refused_to_all(self) -> RateLimited | BudgetSpent | None:
        try:
            self._bill.check()
        except BudgetSpent as error:
            return error
        return self._left_alone()

    def _left_alone(self) -> RateLimited | None:
        left = self._limiter.refusing(asyncio.get_running_loop().time())
        if left is None:
            return None
        return RateLimited(f"{self._where} wants to be left alone for {left:.0f} s more", left)

    def _refuse_all(self, error: RateLimited | BudgetSpent) -> None:
        for number, turn in self._turns.items():
            if not turn.done():
                self._limiter.withdraw(number)
                turn.set_exception(_copy(error))


def _copy(error: RateLimited | BudgetSpent) -> RateLimited | BudgetSpent:
    """One exception for each waiter: a shared one would gather the tracebacks of all."""
    return RateLimited(str(error), error.retry_after) if isinstance(error, RateLimited) else BudgetSpent(str(error))


async def _next(items: AsyncGenerator[Any], spent: Charge) -> Any:
    # Each item may be asked for in another context, so what is charged is tied to it anew.
    token = _charge.set(spent)
    try:
        return await anext(items, _END)
    finally:
        _charge.reset(token)
