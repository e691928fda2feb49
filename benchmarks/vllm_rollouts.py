"""Tokens a second of vLLM through AgentFly's rollout layer, beside vLLM's own engine at the same concurrency.

Both draw completions of one length for the same prompts with the same options: vLLM's `AsyncLLM` called directly, and
rollouts of an agent through a pool of it on Ray. Runs in the environment of scripts/vllm-env, or where vLLM is
installed for CUDA.

    python benchmarks/vllm_rollouts.py [--sequences 32] [--tokens 128] [--rounds 3] [--gpus 0]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from dataclasses import replace
from typing import Any

from agentfly.agent import Agent, reward
from agentfly.context import Task
from agentfly.models.engine import Sampling
from agentfly.models.spec import ModelSpec
from agentfly.models.tiny import CHAT_TEMPLATE, build_model, build_tokenizer
from agentfly.models.vllm.engine import VllmEngine
from agentfly.models.vllm.translate import sampling_params
from agentfly.rollout.opener import load_format
from agentfly.rollout.request import GroupRequest, RolloutOptions
from agentfly.rollout.runner import RolloutRunner
from agentfly.rollout.session import resource_session


def silent_agent() -> Agent:
    """One turn and no tools, so that only the layer itself is measured."""

    @reward
    def nothing() -> float:
        return 0.0

    return Agent(reward=nothing, max_turns=1)


async def direct(llm: Any, prompts: list[list[int]], sampling: Sampling, turn: int) -> float:
    """Tokens a second of vLLM called directly."""

    async def one(index: int, prompt: list[int]) -> int:
        count = 0
        # A seed for each, as rollouts have: vLLM then draws row by row.
        params = sampling_params(replace(sampling, seed=index), streamed=False)
        async for output in llm.generate({"prompt_token_ids": prompt}, params, f"{turn}-{index}"):
            count = len(output.outputs[0].token_ids)
        return count

    started = time.perf_counter()
    counts = await asyncio.gather(*(one(index, prompt) for index, prompt in enumerate(prompts)))
    return sum(counts) / (time.perf_counter() - started)


async def through_rollouts(runner: RolloutRunner, tasks: list[Task], turn: int) -> float:
    """Tokens a second of rollouts through a pool."""
    started = time.perf_counter()
    requests = [GroupRequest(f"{turn}-{task.id}", task, 1, turn) for task in tasks]
    groups = [group async for group in runner.run(requests)]
    tokens = sum(int(s.mask.sum()) for group in groups for t in group for s in t.segments)
    return tokens / (time.perf_counter() - started)


async def measure(
    model: ModelSpec, tasks: list[Task], prompts: list[list[int]], sampling: Sampling, rounds: int
) -> tuple[list[float], list[float]]:
    """Both in turn, so that other work on the machine weighs on both; the first round warms up."""
    engine = VllmEngine(model.path, **model.options)
    await engine.start()
    options = RolloutOptions(sampling=Sampling(max_tokens=sampling.max_tokens), concurrency=len(tasks), timeout=None)
    own, ours = [], []
    try:
        async with (
            resource_session() as manager,
            RolloutRunner(silent_agent(), model, options, manager=manager) as runner,
        ):
            for turn in range(rounds + 1):
                own.append(await direct(engine._engine(), prompts, sampling, turn))
                ours.append(await through_rollouts(runner, tasks, turn))
    finally:
        await engine.stop()
    return own[1:], ours[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--gpus", type=float, default=0)
    arguments = parser.parse_args()
    options = {"dtype": "auto", "max_running": max(32, arguments.sequences), "cpu_cache_gib": 1}
    if not arguments.gpus:
        options |= {"dtype": "float32", "threads": 1}
    with tempfile.TemporaryDirectory() as folder:
        build_tokenizer([CHAT_TEMPLATE] * 4, 400, folder)
        heads = max(2, arguments.hidden // 64)
        build_model(folder, hidden=arguments.hidden, layers=arguments.layers, heads=heads, init_std=0.02)
        model = ModelSpec(engine="vllm", path=folder, family="qwen3", options=options, num_gpus=arguments.gpus)
        tasks = [Task(str(number), {"prompt": f"Number {number}?"}) for number in range(arguments.sequences)]
        chat = load_format(model, [])
        prompts = [list(chat.render([{"role": "user", "content": task.fields["prompt"]}], [])) for task in tasks]
        stopping = Sampling(max_tokens=arguments.tokens, stop_token_ids=tuple(chat.stop_token_ids))
        own, ours = asyncio.run(measure(model, tasks, prompts, stopping, arguments.rounds))
    first, second = statistics.median(own), statistics.median(ours)
    print(f"vLLM itself      {first:9.0f} tokens/s")
    print(f"through rollouts {second:9.0f} tokens/s, {second / first:.2f} of it (wanted: 0.95)")


if __name__ == "__main__":
    main()
