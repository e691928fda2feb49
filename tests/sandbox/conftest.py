"""Sandboxes that tests share."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator

import pytest
from sandbox.boxes import running

from agentfly.resources.sandbox import Sandbox


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    """A sandbox of the embedded provider."""
    async with running() as sandbox:
        yield sandbox


@pytest.fixture(params=["bubblewrap", "process"])
async def any_box(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A sandbox of each provider that runs here: what these tests ask, every provider must do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the second one isolates nothing
        async with running(provider=request.param) as sandbox:
            yield sandbox
