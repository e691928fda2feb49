"""A gateway session on a scripted policy, for tests with real clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agentfly.models.engine import Sampling
from agentfly.models.scripted import ScriptedEngine
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.gateway.server import serve_session
from agentfly.rollout.gateway.session import CaptureSession, SessionLimits

Script = Callable[[str, int, int], str]

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
ADD = {
    "name": "add",
    "description": "Add.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def adds(prompt: str, turn: int, seed: int) -> str:
    """Calls the tool, then tells what came back."""
    return "The sum is 3." if "<tool_response>" in prompt else f"Let me see.\n{CALL}"


def recorded(engine: Any) -> list[tuple[list[int], list[int]]]:
    """Keeps prompts and completions of an engine."""
    calls: list[tuple[list[int], list[int]]] = []
    generate = engine.generate

    async def recording(prompt: Any, sampling: Any, **options: Any) -> Any:
        completion = await generate(prompt, sampling, **options)
        calls.append((list(prompt), list(completion.ids)))
        return completion

    engine.generate = recording
    return calls


@asynccontextmanager
async def gateway(
    folder: str, script: Script, *, max_calls: int = 20, max_context: int = 4000, max_total_tokens: int | None = None
) -> AsyncIterator[tuple[CaptureSession, str, str, list[tuple[list[int], list[int]]]]]:
    """The session, its base URL and key, and what the engine saw and said."""
    engine = ScriptedEngine(folder, script, max_context=max_context)
    await engine.start()
    calls = recorded(engine)
    limits = SessionLimits(max_calls, 400, max_context, max_total_tokens)
    session = CaptureSession(engine, ChatFormat.load(folder), id="s", sampling=Sampling(), seed=0, limits=limits)
    async with serve_session(session.answer) as (url, key):
        yield session, url, key, calls
