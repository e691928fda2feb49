"""What this machine has for sandboxes, for people who want to know."""

from __future__ import annotations

import asyncio

from agentfly.errors import AgentFlyError
from agentfly.resources.sandbox.provider import Check
from agentfly.resources.sandbox.providers import provider_named
from agentfly.resources.sandbox.sandbox import Sandbox
from agentfly.resources.sandbox.spec import SandboxSpec


def probe(provider: str = "bubblewrap") -> list[Check]:
    """Look at what a provider needs, and start a sandbox: nothing less shows that this kernel allows it.

    Must not be called from a running event loop.

    Raises:
        ConfigError: there is no such provider.
    """
    return [*provider_named(provider).checks(), asyncio.run(_started(provider))]


async def _started(provider: str) -> Check:
    box = Sandbox(**SandboxSpec(provider=provider).args)
    try:
        await box.start()
        try:
            version = (await box.run_python("import sys; print(sys.version.split()[0])")).stdout.strip()
        finally:
            await box.stop()
    except (AgentFlyError, OSError) as error:
        return Check(f"sandbox ({provider})", None, (str(error).splitlines() or [""])[0])
    return Check(f"sandbox ({provider})", f"starts, with Python {version} inside")
