"""A job's hold on the cluster: Ray, one resource manager, and their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from agentfly.resources import ManagerHandle, start_manager, stop_manager
from agentfly.resources.cluster import ray_cluster


@asynccontextmanager
async def resource_session(job: str = "agentfly", *, event_log: Path | None = None) -> AsyncIterator[ManagerHandle]:
    """Ray and a resource manager for the block; at its end every host and slot of the job is stopped.

    Args:
        job: names the manager in Ray's dashboard; a suffix keeps two jobs of one name apart.
        event_log: file that tells of every lease, start and reset, for `agentfly plan`.
    """
    with ray_cluster():
        manager = start_manager(f"{job}-{uuid4().hex[:8]}", event_log=None if event_log is None else str(event_log))
        try:
            yield manager
        finally:
            await stop_manager(manager)
