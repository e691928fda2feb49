"""Makes sandboxes of E2B."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from agentfly.errors import ConfigError, StartFailed, first_line
from agentfly.resources.sandbox.e2b.options import E2bOptions, parse_options
from agentfly.resources.sandbox.link import LinkClosed
from agentfly.resources.sandbox.owners import is_dead, machine, this_process
from agentfly.resources.sandbox.provider import Capability, Check
from agentfly.resources.sandbox.relay.link import GRACE, open_link
from agentfly.resources.sandbox.remote import RemoteRuntime
from agentfly.resources.sandbox.settings import SandboxSettings

if TYPE_CHECKING:
    from e2b import AsyncSandbox

_log = logging.getLogger(__name__)
_MACHINE, _PROCESS = "agentfly-machine", "agentfly-process"


class E2bProvider:
    """Sandboxes that are microVMs of E2B; their limits are the template's (`image`).

    What a killed process of this machine left there is killed at the first start; what one of another machine left
    expires there, since nobody renews it.
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Provider`."""
        return frozenset({"python", "isolation", "network", "image", "pause"})

    def check(self, settings: SandboxSettings) -> None:
        """See `Provider`."""
        parse_options(settings.options)
        if settings.require:
            raise ConfigError(
                f"require: the provider 'e2b' limits {settings.require[0]} by its template, not by a spec"
            )
        if settings.mounts:
            raise ConfigError("mounts: the provider 'e2b' runs elsewhere, nothing of this machine can be shown to it")
        if settings.packages:
            raise ConfigError("packages: the provider 'e2b' has those of its template")
        if settings.python is not None:
            raise ConfigError("python: give the provider 'e2b' the option python")

    async def start(self, settings: SandboxSettings) -> RemoteRuntime:
        """See `Provider`."""
        _need_sdk()
        from agentfly.resources.sandbox.e2b.machine import FAULTS, E2bMachine

        options = parse_options(settings.options)
        await _first_start(options).sweep()
        try:
            made = await _create(settings, options)
        except FAULTS as error:
            raise StartFailed(f"E2B makes no sandbox: {first_line(error)}") from None
        held = E2bMachine(made, options)
        try:
            link = await open_link(held, settings, workdir=options.workdir, python=options.python)
        except BaseException as error:
            await held.kill()
            if isinstance(error, (LinkClosed, OSError)):
                raise StartFailed("the sandbox of E2B ended while it was started") from None
            raise
        return RemoteRuntime(held, link, settings.disk, grace=GRACE)

    def checks(self) -> list[Check]:
        """See `Provider`."""
        sdk = "installed" if importlib.util.find_spec("e2b") else None
        key = "E2B_API_KEY" if os.environ.get("E2B_API_KEY") else None
        return [
            Check("e2b", sdk, "pip install 'agentfly-rl[e2b]'"),
            Check("key of E2B", key, "set E2B_API_KEY, or the option api_key", needed=False),
        ]


class Orphans:
    """What killed processes left at a service; looked for once a process.

    Args:
        options: which service.
    """

    def __init__(self, options: E2bOptions) -> None:
        self._options = options
        self._sweeping: asyncio.Task[None] | None = None

    async def sweep(self) -> None:
        """Kill them, or wait until that has been done. Failing at it is no reason not to start."""
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep())
        await asyncio.shield(self._sweeping)

    async def _sweep(self) -> None:
        from e2b import AsyncSandbox, SandboxQuery

        from agentfly.resources.sandbox.e2b.machine import FAULTS, patiently

        try:
            pages = AsyncSandbox.list(query=SandboxQuery(metadata={_MACHINE: machine()}), **self._options.service)
            while pages.has_next:
                for found in await patiently(self._options, pages.next_items):
                    if is_dead((found.metadata or {}).get(_PROCESS, "")):
                        _log.warning("sandbox %s of a process that was killed is ended", found.sandbox_id)
                        await AsyncSandbox.kill(found.sandbox_id, **self._options.service)
        except FAULTS as error:
            _log.warning("sandboxes of killed processes could not be looked for: %s", first_line(error))


@cache
def _first_start(options: E2bOptions) -> Orphans:
    return Orphans(options)


async def _create(settings: SandboxSettings, options: E2bOptions) -> AsyncSandbox:
    """Have a sandbox made; when whoever asked has left meanwhile, it is ended."""
    from e2b import AsyncSandbox

    from agentfly.resources.sandbox.e2b.machine import FAULTS, patiently

    arguments: dict[str, Any] = {
        "template": settings.image,
        "timeout": options.lifetime,
        "metadata": {_MACHINE: machine(), _PROCESS: this_process()},
        "envs": dict(settings.env),
        "allow_internet_access": settings.network,
        **options.service,
    }
    making = asyncio.ensure_future(patiently(options, lambda: AsyncSandbox.create(**arguments)))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        with contextlib.suppress(*FAULTS):
            await (await making).kill()
        raise


def _need_sdk() -> None:
    if importlib.util.find_spec("e2b") is None:
        raise ConfigError("the provider 'e2b' needs its SDK: pip install 'agentfly-rl[e2b]'")
