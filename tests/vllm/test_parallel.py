"""Each layer shared by two processes."""

from __future__ import annotations

from assets import difference, logprobs, options, shaken, weights_of

from agentfly.models.engine import Sampling
from agentfly.models.vllm.engine import VllmEngine

PROMPT = [(i * 7) % 300 + 9 for i in range(100)]


async def test_two_workers_draw_as_one_and_both_get_new_weights(untied: str) -> None:
    engine = VllmEngine(untied, **options(tensor_parallel=2, executor="mp"))
    await engine.start()
    try:
        first = await engine.generate(PROMPT, Sampling(max_tokens=20))
        assert difference(first.logprobs, logprobs(untied, PROMPT, first.ids)) < 1e-4
        new = shaken(weights_of(untied), 4)
        await engine.update_weights(new, 1)
        second = await engine.generate(PROMPT, Sampling(max_tokens=20))
        assert difference(second.logprobs, logprobs(untied, PROMPT, second.ids, weights=new)) < 1e-4
    finally:
        await engine.stop()
