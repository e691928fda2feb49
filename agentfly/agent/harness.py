"""Agents that others wrote: any program that can be given the address of a model."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentfly.agent.agent import Agent
from agentfly.errors import ConfigError

if TYPE_CHECKING:
    from agentfly.context import Task

# Task, base URL, key -> the agent's final answer; None takes the last message that the policy sent it.
Harness = Callable[["Task", str, str], Awaitable[str | None]]

_OUTPUT_SHOWN = 2000


@dataclass(frozen=True, kw_only=True, eq=False)
class HarnessAgent(Agent):
    """An agent whose loop is not ours: it runs unchanged, and each of its calls is answered by the policy.

    Its calls are captured with their exact tokens and become one trajectory. It speaks OpenAI's Chat Completions
    or Responses, or Anthropic's Messages, to the base URL that it is given.

    Attributes:
        run: a coroutine function of the task, the base URL (`http://.../v1`) and the key. Text that it returns is
            the final response; with None that is the policy's last message. An exception ends the rollout as an
            error, which is never trained on, unless a limit of the rollout had been reached.
        max_turns: calls that are answered at most; further ones are refused.

    Raises:
        ConfigError: `run` is no coroutine function, or tools of ours were given.
    """

    run: Harness

    def __post_init__(self) -> None:
        super().__post_init__()
        target = self.run if inspect.isroutine(self.run) else getattr(self.run, "__call__", None)  # noqa: B004
        if not inspect.iscoroutinefunction(target):
            raise ConfigError(
                f"a harness's run must be an async function of (task, base_url, api_key), got {self.run!r:.80}"
            )
        if self.tools:
            raise ConfigError("a harness brings tools of its own: HarnessAgent takes no tools")

    def _prompt_fields(self) -> list[str]:
        return []  # the harness builds its own prompts


async def run_command(
    command: Sequence[str], base_url: str, api_key: str, *, env: Mapping[str, str] | None = None, stdin: str = ""
) -> str:
    """Run a command-line agent to its end and return what it printed; for `HarnessAgent.run`.

    The address is in its environment under the names that OpenAI's and Anthropic's clients read. When this is
    cancelled the command and all that it started in its process group are killed.

    Args:
        command: program and arguments.
        base_url, api_key: as `run` got them.
        env: further variables.
        stdin: its input.

    Raises:
        RuntimeError: it ended with another exit code than 0.
    """
    address = {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": api_key,
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": api_key,
    }
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **address, **(env or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = await process.communicate(stdin.encode())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode != 0:
        told = errors.decode("utf-8", "replace")[-_OUTPUT_SHOWN:].strip()
        raise RuntimeError(f"{command[0]} ended with exit code {process.returncode}: {told}")
    return output.decode("utf-8", "replace")
