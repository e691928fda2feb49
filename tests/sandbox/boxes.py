"""Sandboxes for tests, and what is left of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil

from agentfly.resources.sandbox import Sandbox, SandboxSpec

LIMIT = 4096
SETTINGS: dict[str, Any] = {"name": "test", "memory": "512MiB", "disk": "8MiB", "max_output": LIMIT}


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Sandbox]:
    """A started sandbox."""
    sandbox = Sandbox(**SandboxSpec(**{**SETTINGS, **settings}).args)
    await sandbox.start()
    try:
        yield sandbox
    finally:
        await sandbox.stop()


def marked(mark: str) -> list[psutil.Process]:
    """The processes, inside or outside, of sandboxes that have this in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            texts = [*process.cmdline(), *process.environ().values()]
            if process.pid != os.getpid() and any(mark in text for text in texts):
                found.append(process)
        except psutil.Error:
            continue
    return found
