"""A rollout's context that holds one real sandbox, without an engine behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from agentfly.context import Context, Task
from agentfly.resources.sandbox import Sandbox, SandboxSpec

SPEC = SandboxSpec(name="tools", memory="512MiB", disk="16MiB", max_output=4096, timeout=20)


class BoxedContext(Context):
    """Leases the one sandbox that it was given, with the setup of the first who asks."""

    def __init__(self, task: Task, box: Sandbox) -> None:
        super().__init__(rollout_id="r", group_id="g", task=task)
        self._box = box
        self._ready = False

    async def acquire(self, spec: Any, *, setup: Mapping[str, Any] | None = None, **_: Any) -> Any:
        if not self._ready:
            self._ready = True
            await self._box.setup(**(setup or {}))
        return self._box


@asynccontextmanager
async def boxed(fields: Mapping[str, Any], spec: SandboxSpec = SPEC) -> AsyncIterator[Context]:
    """A context of a task with these fields, and its sandbox."""
    box = Sandbox(**spec.args)
    await box.start()
    try:
        yield cast("Context", BoxedContext(Task("t", dict(fields)), box))
    finally:
        await box.stop()
