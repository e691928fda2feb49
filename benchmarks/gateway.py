"""What the capture gateway adds to a call: the same calls to one engine, straight and over HTTP, in turns.

    python benchmarks/gateway.py MODEL_FOLDER [calls]

The engine is scripted and answers at once, so that all that is measured is around it. The clients' own time is in
the figure: `aiohttp` as a bare one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

import aiohttp

from agentfly.models.dialects.chat import ChatDialect
from agentfly.models.engine import Sampling
from agentfly.models.scripted import ScriptedEngine
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.gateway.server import serve_session
from agentfly.rollout.gateway.session import CaptureSession, SessionLimits


def answer(prompt: str, turn: int, seed: int) -> str:
    """Some forty tokens."""
    return "The sum of these numbers is three, since one and two are three. " * 2


async def main(folder: str, calls: int) -> None:
    """Alternate, so that whatever else the machine does meets both; print medians."""
    engine = ScriptedEngine(folder, answer)
    await engine.start()
    format = ChatFormat.load(folder)
    limits = SessionLimits(max_calls=10 * calls + 100, max_tokens=200, max_context=30_000)
    session = CaptureSession(engine, format, id="s", sampling=Sampling(), seed=0, limits=limits)
    body = {"model": "m", "messages": [{"role": "user", "content": "What is the sum of one and two?"}]}
    request = ChatDialect().read(body)
    prompt = format.render(request.messages, [])
    sampling = Sampling(max_tokens=200, stop_token_ids=format.stop_token_ids)
    engine_ms: list[float] = []
    inner_ms: list[float] = []
    http_ms: list[float] = []
    async with serve_session(session.answer) as (url, key), aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {key}"}
        for number in range(calls + 20):
            started = time.perf_counter()
            await engine.generate(prompt, sampling)
            straight = time.perf_counter()
            await session.answer(request)
            inside = time.perf_counter()
            async with http.post(f"{url}/chat/completions", json=body, headers=headers) as response:
                await response.json()
            ended = time.perf_counter()
            if number >= 20:  # warm
                engine_ms.append(1000 * (straight - started))
                inner_ms.append(1000 * (inside - straight))
                http_ms.append(1000 * (ended - inside))
    straight_ms = median(engine_ms)
    print(f"engine {straight_ms:.2f} ms, captured {median(inner_ms):.2f} ms, over HTTP {median(http_ms):.2f} ms (p50)")
    print(f"the gateway adds {median(http_ms) - straight_ms:.2f} ms a call (p50 of {calls}; at most 3)")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500))
