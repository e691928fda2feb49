"""One slot in a host: which lease may call its resource, and what runs there."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from agentfly.errors import StaleLease
from agentfly.resources.resource import Resource

T = TypeVar("T")
_CANCEL_GRACE = 5.0


class Place:
    """A slot and the resource in it. Places of a shared resource have the same one.

    Args:
        name: of the spec, for errors.
        resource: what calls go to.
        threads: where methods that aren't coroutines run.
    """

    def __init__(self, name: str, resource: Resource, threads: Executor) -> None:
        self.resource = resource
        self.epoch = 1
        self._name = name
        self._threads = threads
        self._calls: set[asyncio.Task[Any]] = set()
        self._cleaners: set[asyncio.Task[Any]] = set()
        self._setup: asyncio.Task[Any] | None = None
        self._cleaning = asyncio.Lock()
        self._closed = False

    async def call(self, epoch: int, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a method for a lease.

        Raises:
            StaleLease: the lease has ended, perhaps during the call.
            Exception: what the method raised.
        """
        self._enter(epoch)
        return await self._tracked(epoch, method, invoke(self.resource, method, args, kwargs, self._threads))

    async def setup(self, epoch: int, kwargs: Mapping[str, Any]) -> None:
        """Run `setup`, once for a lease; those who share it wait for the same run. Raises as `call`."""
        self._enter(epoch)
        if self._setup is None:
            self._setup = asyncio.ensure_future(self.call(epoch, "setup", (), kwargs))
        await asyncio.shield(self._setup)

    async def stream(
        self, epoch: int, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """Run an asynchronous generator for a lease; raises as `call`."""
        self._enter(epoch)
        items: AsyncGenerator[Any] = getattr(self.resource, method)(*args, **kwargs)
        try:
            while True:
                try:
                    item = await self._tracked(epoch, method, items.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            await items.aclose()

    async def clean(self, epoch: int, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """End the calls of leases before the epoch, then do the work; one at a time.

        Raises:
            StaleLease: the place was closed meanwhile.
            Exception: what the work raised.
        """
        self._advance(epoch)
        await self._end(self._calls)
        async with self._cleaning:
            if self._closed:
                raise StaleLease(f"the host of {self._name!r} is being stopped")
            task = asyncio.create_task(work())
            self._cleaners.add(task)
            task.add_done_callback(self._cleaners.discard)
            try:
                return await task
            except asyncio.CancelledError:
                if self._closed:
                    raise StaleLease(f"the host of {self._name!r} is being stopped") from None
                raise

    async def close(self) -> None:
        """End calls and cleaning, so that the resource can be stopped: a reset could start it anew."""
        self._closed = True
        await self._end(self._calls | self._cleaners)

    async def _end(self, tasks: set[asyncio.Task[Any]]) -> None:
        """Cancel what runs; what doesn't heed that is left behind."""
        running = list(tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_CANCEL_GRACE)

    def _enter(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise StaleLease(f"the lease of {self._name!r} has ended: acquire it again")
        # A shared resource isn't cleaned between leases, so the first call of a new lease brings the news.
        self._advance(epoch)

    def _advance(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            self._setup = None

    async def _tracked(self, epoch: int, method: str, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.create_task(_as_task(work))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            value, error = await task
        except asyncio.CancelledError:
            if task.cancelled() and self.epoch != epoch:
                raise StaleLease(f"the lease of {self._name!r} ended during {method}()") from None
            task.cancel()
            raise
        if error is not None:
            raise error
        return value


async def invoke(
    resource: Resource, method: str, args: Sequence[Any], kwargs: Mapping[str, Any], threads: Executor
) -> Any:
    """Run a method; in a thread if it is no coroutine function."""
    function: Callable[..., Any] = getattr(resource, method)
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    loop = asyncio.get_running_loop()
    result = await loop.run_in_executor(threads, functools.partial(function, *args, **kwargs))
    return await result if inspect.isawaitable(result) else result


async def _as_task(work: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    # A task can't carry StopAsyncIteration, and logs other exceptions that nobody fetched.
    try:
        return await work, None
    except asyncio.CancelledError:
        raise
    except (Exception, StopAsyncIteration) as error:
        return None, error
