"""verl's trainer in Ray: started, watched, and ended with whoever waits for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from omegaconf import OmegaConf
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

from agentfly.errors import AgentFlyError
from agentfly.resources.signals import keeping_signal_handlers


@contextmanager
def verl_cluster(config: Any) -> Iterator[None]:
    """Ray as verl's configuration wants it, in the block.

    A process that is connected keeps its connection. Else the cluster at `RAY_ADDRESS` is joined, or one is started
    here for as long as the block lasts.

    Raises:
        AgentFlyError: Ray can't be started or joined.
    """
    if ray.is_initialized():
        yield
        return
    settings = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    environment = OmegaConf.merge(get_ppo_ray_runtime_env(config), settings.pop("runtime_env", None) or {})
    if not settings.get("address"):
        settings["address"] = os.environ.get("RAY_ADDRESS") or "local"
    if settings["address"] == "local":
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with keeping_signal_handlers():
            ray.init(**settings, runtime_env=OmegaConf.to_container(environment))
    except Exception as error:
        ray.shutdown()
        raise AgentFlyError(f"Ray can't be used at {settings['address']!r}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


class TrainerRun:
    """One run of verl's own trainer. verl blocks while it trains, so it waits in a thread.

    Args:
        config: verl's whole configuration.
        environment: variables for all of verl's processes.
    """

    def __init__(self, config: Any, environment: Mapping[str, str]) -> None:
        self._config = config
        self._environment = dict(environment)
        self._runner: Any = None
        self._done: asyncio.Task[None] | None = None

    def remote(self) -> Any:
        """verl calls this in the place of its own task runner class: the same one, on this node and within reach."""
        from verl.trainer.main_ppo import TaskRunnerV1

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        options = {"scheduling_strategy": here, "runtime_env": {"env_vars": self._environment}}
        self._runner = TaskRunnerV1.options(**options).remote()
        return self._runner

    def start(self) -> asyncio.Task[None]:
        """Begin; the task ends with the training, or raises what ended it."""
        self._done = asyncio.create_task(self._run())
        return self._done

    async def stop(self) -> None:
        """End it now; whatever verl has started goes with it."""
        if self._done is None or self._done.done():
            return
        if self._runner is not None:
            ray.kill(self._runner)
        await asyncio.wait({self._done})
        self._done.exception()  # it was killed

    async def _run(self) -> None:
        from verl.trainer.main_ppo import run_ppo

        try:
            await asyncio.to_thread(run_ppo, self._config, self)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause or error
            raise AgentFlyError(f"verl's trainer failed: {type(cause).__name__}: {cause}") from error
        except ray.exceptions.RayError as error:
            raise AgentFlyError(f"verl's trainer died: {error}") from error
