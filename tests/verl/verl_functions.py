"""Functions as verl's users make tools of them; nothing in here knows of AgentFly."""

from __future__ import annotations

import time

from verl.tools.function_tool import function_tool


@function_tool
def shout(text: str) -> str:
    """Say it louder.

    Args:
        text: what to say.
    """
    time.sleep(0.01)
    return text.upper()


@function_tool("slowly")
async def slow(text: str) -> tuple[str, float, dict]:
    """Say it slowly.

    Args:
        text: what to say.
    """
    return " ".join(text), 1.0, {"length": len(text)}
