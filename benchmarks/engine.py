"""Tokens a second of the embedded engine, beside a bare decode loop and transformers' continuous batching.

One run measures all three on the same tiny model and the same prompts, several times in turn, and prints
the ratios of the medians: other work on the machine then weighs on all of them.

    python benchmarks/engine.py [--sequences 32 128] [--prompt 96] [--tokens 96] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, DynamicCache, GenerationConfig
from transformers.utils import logging

from agentfly.models.engine import Sampling
from agentfly.models.local.engine import LocalEngine
from agentfly.models.tiny import build_model

Prompts = list[list[int]]


def bare_loop(model: Any, prompts: Prompts, tokens: int) -> int:
    """A static batch: prefill once, then decode, sample and record log-probabilities in lockstep."""
    with torch.inference_mode():
        cache = DynamicCache(config=model.config)
        ids = torch.tensor(prompts)
        drawn, logprobs = [], []
        for _ in range(tokens):
            logits = model(input_ids=ids, cache=cache, logits_to_keep=1).logits[:, -1]
            scores = logits.log_softmax(-1)
            ids = torch.multinomial(scores.exp(), 1)
            drawn.append(ids)
            logprobs.append(scores.gather(1, ids))
        return torch.cat(drawn, 1).numel()


class ContinuousBatching:
    """transformers' own continuous batching, started once and warm."""

    def __init__(self, model: Any, tokens: int, cache_tokens: int) -> None:
        config = ContinuousBatchingConfig(
            page_size=32,
            num_blocks=cache_tokens // 32,
            max_batch_tokens=2048,
            return_logprobs=True,
            allow_block_sharing=False,
        )
        generation = GenerationConfig(max_new_tokens=tokens, do_sample=True, eos_token_id=-1, pad_token_id=0)
        self._manager = model.init_continuous_batching(generation_config=generation, continuous_batching_config=config)
        self._manager.start()

    def run(self, prompts: Prompts) -> int:
        self._manager.add_requests(prompts)
        total = 0
        for _ in prompts:
            result = self._manager.get_result(timeout=300)
            total += len(result.generated_tokens)
        return total

    def close(self) -> None:
        self._manager.stop(block=True)


class Embedded:
    """The engine, called as a rollout worker calls it: one coroutine for each sequence."""

    def __init__(self, folder: str, threads: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._engine = LocalEngine(folder, threads=threads, prefix_bytes=0)
        self._loop.run_until_complete(self._engine.start())

    def run(self, prompts: Prompts, tokens: int) -> int:
        async def all_calls() -> int:
            calls = [
                self._engine.generate(prompt, Sampling(max_tokens=tokens, seed=index))
                for index, prompt in enumerate(prompts)
            ]
            return sum(len(completion.ids) for completion in await asyncio.gather(*calls))

        return self._loop.run_until_complete(all_calls())

    def close(self) -> None:
        self._loop.run_until_complete(self._engine.stop())
        self._loop.close()


def rate(run: Callable[[], int]) -> float:
    started = time.perf_counter()
    tokens = run()
    return tokens / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sequences", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--vocab", type=int, default=512)
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        build_model(folder, vocab_size=arguments.vocab, hidden=arguments.hidden, layers=arguments.layers)
        plain = loaded(folder)
        engine = Embedded(folder, arguments.threads)
        room = 2 * max(arguments.sequences) * (arguments.prompt + arguments.tokens)
        paged = ContinuousBatching(loaded(folder), arguments.tokens, room)
        rng = random.Random(0)
        for count in arguments.sequences:
            prompts = [[rng.randrange(arguments.vocab) for _ in range(arguments.prompt)] for _ in range(count)]
            runs: dict[str, Callable[[], int]] = {
                "bare loop": partial(bare_loop, plain, prompts, arguments.tokens),
                "continuous batching": partial(paged.run, prompts),
                "engine": partial(engine.run, prompts, arguments.tokens),
            }
            report(count, runs, arguments.rounds)
        paged.close()
        engine.close()


def loaded(folder: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()


def report(count: int, runs: dict[str, Callable[[], int]], rounds: int) -> None:
    measured: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            measured[name].append(rate(run))
    medians = {name: statistics.median(rates) for name, rates in measured.items()}
    for name, value in medians.items():
        print(f"{count:4d} sequences  {name:20s} {value:9.0f} tokens/s   engine/this {medians['engine'] / value:5.2f}")


if __name__ == "__main__":
    main()
