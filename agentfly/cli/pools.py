"""`agentfly pools`: a running job's pools, and their sizes while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import ray
from rich.console import Console
from rich.live import Live

from agentfly.cli.pools_table import pools_json, pools_table
from agentfly.errors import AgentFlyError, ConfigError
from agentfly.resources import PoolStats
from agentfly.resources.cluster import running_cluster
from agentfly.resources.jobs import find_manager

_PATIENCE = 30.0


class _JobEnded(Exception):
    """Its manager is no more."""


def show_pools(address: str | None, job: str | None, *, once: bool, as_json: bool, interval: float) -> None:
    """Print the pools once, or again and again until the job ends or Ctrl-C.

    Raises:
        ConfigError: there is no such cluster or job.
        AgentFlyError: the manager doesn't answer.
    """
    console = Console()
    with _manager(address, job) as (name, manager), suppress(KeyboardInterrupt):
        snapshots = _snapshots(manager, None if once else interval)
        if as_json:
            for pools in snapshots:
                print(pools_json(name, pools), flush=True)  # noqa: T201 - the console would wrap it
        elif once:
            console.print(pools_table(name, next(snapshots)))
        else:
            with Live(console=console, auto_refresh=False) as live:
                for pools in snapshots:
                    live.update(pools_table(name, pools), refresh=True)
            console.print(f"{name} has ended")


def resize_pool(address: str | None, job: str | None, pool: str, size: int, smallest: int | None) -> None:
    """Change the bounds of a pool and print it.

    Raises:
        ConfigError: there is no such cluster, job or pool, or the bounds are wrong.
        AgentFlyError: the manager doesn't answer.
    """
    with _manager(address, job) as (name, manager):
        pools = _ask(lambda: manager.resize.remote(pool, smallest, size))
        Console().print(pools_table(name, pools))


@contextmanager
def _manager(address: str | None, job: str | None) -> Iterator[tuple[str, Any]]:
    with running_cluster(address):
        name, manager = find_manager(job)
        try:
            yield name, manager
        except _JobEnded:
            raise ConfigError(f"job {name!r} has just ended") from None


def _snapshots(manager: Any, interval: float | None) -> Iterator[Sequence[PoolStats]]:
    """Statistics now and after each interval, until the job ends."""
    yield _ask(lambda: manager.stats.remote())
    while interval is not None:
        time.sleep(interval)
        try:
            yield _ask(lambda: manager.stats.remote())
        except _JobEnded:
            return


def _ask(call: Callable[[], Any]) -> Any:
    try:
        return ray.get(call(), timeout=_PATIENCE)
    except ray.exceptions.ActorDiedError:
        raise _JobEnded from None
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, AgentFlyError):
            raise error.cause from None
        raise AgentFlyError(f"the job's manager failed: {error.cause}") from None
    except (ray.exceptions.RayError, TimeoutError) as error:
        raise AgentFlyError(f"the job's manager doesn't answer ({type(error).__name__}); try again") from None
