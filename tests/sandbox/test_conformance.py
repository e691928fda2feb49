"""Every provider keeps the same promises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sandbox.conformance import LIMIT, Conformance
from sandbox.docker_engine import docker_engine
from sandbox.e2b_server import e2b_server

from agentfly.resources.sandbox import SandboxSpec

pytestmark = pytest.mark.slow
COMMON: dict[str, Any] = {"name": "conformance", "disk": "8MiB", "max_output": LIMIT, "memory": "512MiB"}


@pytest.mark.filterwarnings("ignore:sandboxes of the provider 'process'")
@pytest.mark.parametrize("provider", ["bubblewrap", "sandlock", "process"])
class TestHere(Conformance):
    """Providers that run on this machine."""

    @pytest.fixture
    def spec(self, provider: str) -> SandboxSpec:
        return SandboxSpec(provider=provider, **COMMON)


@pytest.mark.parametrize("provider", ["e2b", "docker"])
class TestServed(Conformance):
    """Providers that run elsewhere: their SDKs against servers of ours, which isolate nothing."""

    @pytest.fixture
    async def spec(self, provider: str) -> AsyncIterator[SandboxSpec]:
        async with AsyncExitStack() as stack:
            if provider == "e2b":
                server = await stack.enter_async_context(e2b_server())
                yield SandboxSpec(provider="e2b", provider_options=server.options(), **COMMON)
            else:
                engine = await stack.enter_async_context(docker_engine())
                options = {"base_url": engine.url, "workdir": "/tmp/workspace"}
                yield SandboxSpec(provider="docker", image="image:1", provider_options=options, **COMMON)

    def can(self, spec: SandboxSpec, capability: str) -> bool:
        return capability not in ("isolation", "network") and super().can(spec, capability)
