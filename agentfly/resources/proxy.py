"""What a lessee holds: an object of the resource's type whose methods run in the host."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, aclosing, nullcontext
from typing import Any, Protocol

import ray

from agentfly.errors import ModelError, ResourceDied, ResourceError, StaleLease
from agentfly.resources.core.types import Lease
from agentfly.resources.faults import Fault, FaultSink
from agentfly.resources.host import Raised
from agentfly.resources.phases import Phase
from agentfly.resources.spec import ResourceSpec

_POOLS_OWN = frozenset({"start", "setup", "reset", "stop", "healthy"})


class Channel:
    """The way from a lease to its host: each call is one Ray call, and nothing more.

    Args:
        host: its actor handle; None when it died before it could be used.
        valid: whether the lease hasn't been given back.
        on_loss: told when a call shows that the host is dead or the lease has ended.
        faults: the lessee's ledger.
        waits: entered while a call queues in the resource.
    """

    def __init__(
        self,
        spec: ResourceSpec[Any],
        lease: Lease,
        host: Any,
        valid: Callable[[], bool],
        on_loss: Callable[[], None],
        faults: FaultSink,
        waits: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._spec = spec
        self._lease = lease
        self._host = host
        self._valid = valid
        self._on_loss = on_loss
        self._faults = faults
        self._waits: AbstractContextManager[Any] = nullcontext() if waits is None else waits

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run a method; cancelling this call cancels it in the host.

        Raises:
            ResourceDied: the host is dead.
            StaleLease: the lease has ended.
            Exception: what the method raised, its remote traceback as a note.
        """
        if self._spec.queues:
            (result,) = [item async for item in self._items("call_in_phases", method, args, kwargs)]
            return result
        self._check()
        reference = self._host.call.remote(self._lease.slot, self._lease.epoch, method, args, kwargs)
        try:
            result = await reference
        except asyncio.CancelledError:
            ray.cancel(reference)
            raise
        except ray.exceptions.RayError as error:
            raise self._failed(method, error) from None
        return self._unwrap(result)

    async def stream(self, method: str, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Run an asynchronous generator; raises as `call`."""
        run = "stream_in_phases" if self._spec.queues else "stream"
        async with aclosing(self._items(run, method, args, kwargs)) as items:
            async for item in items:
                yield item

    async def _items(
        self, run: str, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> AsyncGenerator[Any]:
        """What a generator of the host yields; while it says that it queues, the lessee waits."""
        self._check()
        remote = getattr(self._host, run).options(num_returns="streaming")
        references = remote.remote(self._lease.slot, self._lease.epoch, method, args, kwargs)
        ended = False
        waiting = ExitStack()
        try:
            async for reference in references:
                item = await reference
                if item is Phase.QUEUES:
                    waiting.enter_context(self._waits)
                elif item is Phase.WORKS:
                    waiting.close()
                else:
                    yield self._unwrap(item)
            ended = True
        except ray.exceptions.RayError as error:
            raise self._failed(method, error) from None
        finally:
            waiting.close()
            if not ended:
                ray.cancel(references)

    def _check(self) -> None:
        if self._host is None:
            raise self._died(f"the host of {self._spec.name!r} died before it could be used")
        if not self._valid():
            raise StaleLease(f"the lease of {self._spec.name!r} has been given back: acquire it again")

    def _unwrap(self, result: Any) -> Any:
        if not isinstance(result, Raised):
            return result
        error = result.error
        if isinstance(error, (ResourceDied, StaleLease)):
            self._on_loss()
        if isinstance(error, (ResourceError, ModelError)):
            self._record(error)
        error.add_note(f"in the host of {self._spec.name!r}:\n{result.remote_traceback}")
        raise error

    def _failed(self, method: str, error: ray.exceptions.RayError) -> BaseException:
        """What a failed Ray call means."""
        if isinstance(error, ray.exceptions.RayTaskError):
            cause: BaseException | None = error.cause  # what it returned can't be sent: the method's own fault
            return error if cause is None else cause
        return self._died(f"the host of {self._spec.name!r} was lost during {method}() ({type(error).__name__})")

    def _died(self, message: str) -> ResourceDied:
        self._on_loss()
        died = ResourceDied(message)
        self._record(died)
        return died

    def _record(self, error: Exception) -> None:
        self._faults(Fault(type(error).__name__, self._spec.name, str(error)))


class _Named(Protocol):
    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any] | AsyncIterator[Any]: ...


class Proxy:
    """Stands for a leased resource. Only its methods are there, and all of them are awaited."""

    def __init__(self, resource: type[Any], channel: Channel) -> None:
        self.__resource = resource
        self.__channel = channel

    def __getattr__(self, name: str) -> _Named:
        resource, channel = self.__resource, self.__channel
        function = None if name.startswith("_") or name in _POOLS_OWN else getattr(resource, name, None)
        if not callable(function):
            raise AttributeError(
                f"a leased {resource.__name__} has no method {name!r}: its attributes, private names and life-cycle "
                "methods stay in the host"
            )
        run = channel.stream if inspect.isasyncgenfunction(function) else channel.call

        def method(*args: Any, **kwargs: Any) -> Awaitable[Any] | AsyncIterator[Any]:
            return run(name, *args, **kwargs)

        return method

    def __repr__(self) -> str:
        return f"<leased {self.__resource.__name__}>"
