"""Starts vLLM's engine."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from agentfly.errors import AgentFlyError, ConfigError, ModelError, first_line

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

    from agentfly.models.vllm.options import VllmOptions


async def launch(options: VllmOptions) -> AsyncLLM:
    """Start an engine without blocking the event loop; cancelled, it is shut down as soon as it is up.

    Raises:
        ConfigError: vLLM isn't installed, or options are wrong.
        ModelError: vLLM can't start with this model.
    """
    starting = asyncio.create_task(asyncio.to_thread(_build, options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_shut_down)
        raise


def _shut_down(started: asyncio.Task[AsyncLLM]) -> None:
    if not started.cancelled() and started.exception() is None:
        started.result().shutdown()


def _build(options: VllmOptions) -> AsyncLLM:
    os.environ.update(options.environment())
    try:
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise ConfigError(
            f"the vllm engine needs {error.name}: pip install 'agentfly-rl[vllm]' on a machine with CUDA; "
            "for CPUs see scripts/vllm-env"
        ) from error
    try:
        return AsyncLLM.from_engine_args(options.engine_args())
    except AgentFlyError:
        raise
    except Exception as error:  # vLLM, torch and transformers raise what they like
        raise ModelError(f"vLLM can't serve {options.path!r}: {first_line(error)}") from error
