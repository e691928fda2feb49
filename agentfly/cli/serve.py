"""`agentfly serve`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import typer
from rich.console import Console

from agentfly.cli.interrupt import Interrupted, run_interruptible
from agentfly.errors import ConfigError
from agentfly.models.spec import ModelSpec
from agentfly.rollout.opener import load_format
from agentfly.rollout.session import resource_session
from agentfly.serving.app import ServeOptions, serving


def run_serve(model: ModelSpec, *, name: str | None, host: str, port: int, keys_env: str, http_replicas: int) -> None:
    """Serve until a signal comes.

    Raises:
        ConfigError: the model can't be served; nothing has been started.
    """
    load_format(model, ())
    keys = tuple(key.strip() for key in os.environ.get(keys_env, "").split(",") if key.strip())
    if not keys and host not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigError(f"{host} is open to others: put keys, with commas between them, into the variable {keys_env}")
    options = ServeOptions(name or Path(model.path).name, host, port, keys, http_replicas)
    console = Console()
    # Serve kills a proxy that isn't up within five seconds, which a busy machine needs longer for.
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")

    async def run() -> None:
        async with resource_session("serve") as manager, serving(model, manager, options) as url:
            console.print(f"{options.name} at {url}", soft_wrap=True)
            await asyncio.Event().wait()

    try:
        run_interruptible(run())
    except Interrupted as stop:
        raise typer.Exit(stop.exit_code) from None
