"""One microVM: commands and files, renewed while it is held, paused while it is idle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx
from e2b import AsyncSandbox
from e2b.exceptions import (
    AuthenticationException,
    NotFoundException,
    RateLimitException,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    ServiceBusyException,
)
from e2b.sandbox.commands.command_handle import CommandExitException

from agentfly.errors import ResourceDied, first_line
from agentfly.resources.sandbox.e2b.options import E2bOptions
from agentfly.resources.sandbox.link import LinkClosed

T = TypeVar("T")
_log = logging.getLogger(__name__)
_GONE = (SandboxNotRunningException, SandboxNotFoundException)
FAULTS = (
    *(SandboxException, AuthenticationException, RateLimitException, ServiceBusyException),
    *(httpx.HTTPError, OSError),
)
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 10.0
# The service ends what isn't renewed: this often there is another chance.
_RENEWALS = 3


class E2bMachine:
    """A running sandbox of the service.

    Args:
        sandbox: of the SDK.
        options: of the spec.
    """

    def __init__(self, sandbox: AsyncSandbox, options: E2bOptions) -> None:
        self._sandbox = sandbox
        self._options = options
        self._busy = 0
        self._paused = False
        self._changing = asyncio.Lock()
        self._gone = asyncio.Event()
        self._used = asyncio.get_running_loop().time()
        self._tending = [asyncio.create_task(self._renew())]
        if options.pause_after is not None:
            self._tending.append(asyncio.create_task(self._pause_when_idle(options.pause_after)))

    async def execute(self, command: str, timeout: float) -> tuple[int, str]:
        """See `Machine`."""
        return await self._call(lambda: self._execute(command, timeout))

    async def put(self, path: str, data: bytes) -> None:
        """See `Machine`."""
        await self._call(lambda: self._sandbox.files.write(path, data, user=self._options.user))

    async def probe(self) -> None:
        """See `Machine`; a paused one isn't woken."""
        with self._errors():
            info = await patiently(self._options, self._sandbox.get_info)
        if str(getattr(info.state, "value", info.state)) not in ("running", "paused"):
            raise LinkClosed

    def oom_kills(self) -> int:
        """Nobody counts there."""
        return 0

    async def kill(self) -> None:
        """End it; that it is gone already is as well."""
        for task in self._tending:
            task.cancel()
        await asyncio.gather(*self._tending, return_exceptions=True)
        try:
            await asyncio.shield(asyncio.ensure_future(patiently(self._options, self._sandbox.kill)))
        except FAULTS as error:
            _log.warning("sandbox %s could not be ended, and expires: %s", self._sandbox.sandbox_id, first_line(error))

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._awake():
            with self._errors():
                return await patiently(self._options, work)

    async def _execute(self, command: str, timeout: float) -> tuple[int, str]:
        run = self._sandbox.commands.run(command, background=True, user=self._options.user, timeout=timeout)
        starting = asyncio.ensure_future(run)
        try:
            done = await (await asyncio.shield(starting)).wait()
            return done.exit_code, done.stdout
        except CommandExitException as ended:
            return ended.exit_code, ended.stdout
        except asyncio.CancelledError:
            with contextlib.suppress(*FAULTS):
                await (await starting).kill()
            raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """What the SDK raises, as this package tells it: what is gone is a sandbox's end, all else the service's."""
        try:
            yield
        except _GONE:
            self._gone.set()
            raise LinkClosed from None
        except FAULTS as error:
            what = f"sandbox {self._sandbox.sandbox_id} of E2B can't be reached: {first_line(error)}"
            raise ResourceDied(what) from None

    @asynccontextmanager
    async def _awake(self) -> AsyncIterator[None]:
        """Have it run in the block."""
        self._busy += 1
        try:
            async with self._changing:
                if self._paused:
                    with self._errors():
                        lifetime = self._options.lifetime
                        await patiently(self._options, lambda: self._sandbox.connect(timeout=lifetime))
                    self._paused = False
            yield
        finally:
            self._busy -= 1
            self._used = asyncio.get_running_loop().time()

    async def _renew(self) -> None:
        while not self._gone.is_set():
            await asyncio.sleep(self._options.lifetime / _RENEWALS)
            async with self._changing:
                if not self._paused:
                    await self._try("renewed", lambda: self._sandbox.set_timeout(self._options.lifetime))

    async def _pause_when_idle(self, limit: float) -> None:
        loop = asyncio.get_running_loop()
        while not self._gone.is_set():
            await asyncio.sleep(max(self._used + limit - loop.time(), limit / 10))
            async with self._changing:
                if not self._busy and not self._paused and loop.time() - self._used >= limit:
                    self._paused = await self._try("paused", self._sandbox.pause)

    async def _try(self, what: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Something that may fail now and work the next time; calls wait for it, so it isn't tried for long."""
        try:
            await work()
            return True
        except (*_GONE, NotFoundException):
            self._gone.set()
        except FAULTS as error:
            _log.warning("sandbox %s could not be %s: %s", self._sandbox.sandbox_id, what, first_line(error))
        return False


async def patiently(options: E2bOptions, work: Callable[[], Awaitable[T]]) -> T:
    """Do something that the service may put off: it is asked again, ever more seldom.

    Raises:
        RateLimitException: it goes on putting it off.
    """
    delay, waited = _FIRST_DELAY, 0.0
    while True:
        try:
            return await work()
        except (RateLimitException, ServiceBusyException):
            if waited >= options.rate_limit_patience:
                raise
            await asyncio.sleep(delay)
            waited += delay
            delay = min(2 * delay, _LONGEST_DELAY)
