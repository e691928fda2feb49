"""The engine without threads: exact log-probabilities whatever joins, leaves, is shared or replaced."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from models.tiny_models import VOCAB, recompute
from transformers import AutoModelForCausalLM

from agentfly.models.engine import Completion, Sampling
from agentfly.models.local.core import EngineCore
from agentfly.models.local.loading import load_model
from agentfly.models.local.request import make_sequence
from agentfly.models.local.scheduler import Limits

Folder = Callable[[str], str]
Plain = Callable[..., torch.Tensor]


class Driver:
    """A core with a ticking request counter."""

    def __init__(self, folder: str, limits: Limits | None = None, prefix_bytes: int = 1 << 26) -> None:
        self.core = EngineCore(load_model(folder), limits or Limits(), prefix_bytes=prefix_bytes)
        self.prompts: dict[int, list[int]] = {}
        self.done: dict[int, Completion] = {}

    def add(self, prompt: list[int], sampling: Sampling, session: str = "") -> int:
        identity = len(self.prompts)
        model = self.core.model
        self.prompts[identity] = prompt
        self.core.add(
            make_sequence(
                identity,
                prompt,
                sampling,
                session=session,
                priority=0,
                vocab_size=model.vocab_size,
                max_context=model.max_context,
            )
        )
        return identity

    def step(self) -> None:
        with torch.inference_mode():
            self.done.update(self.core.step())

    def finish(self) -> dict[int, Completion]:
        while self.core.busy:
            self.step()
        return self.done

    def sample(self, prompt: list[int], sampling: Sampling, session: str = "") -> Completion:
        identity = self.add(prompt, sampling, session)
        return self.finish()[identity]


def prompts(seed: int, count: int, shortest: int = 1, longest: int = 40) -> Iterator[list[int]]:
    rng = random.Random(seed)
    for _ in range(count):
        yield [rng.randrange(VOCAB) for _ in range(rng.randint(shortest, longest))]


@pytest.mark.parametrize("architecture", ["qwen3", "qwen2", "llama", "mistral", "gemma3_text"])
def test_logprobs_are_those_of_a_plain_forward_pass(
    architecture: str, model_folder: Folder, plain_logprobs: Plain
) -> None:
    """Ragged prompts that join at different steps, in fewer rows than requests, with small prompt chunks."""
    folder = model_folder(architecture)
    driver = Driver(folder, Limits(rows=5, prefill_tokens=7))
    rng = random.Random(0)
    for prompt in prompts(1, 14):
        driver.add(prompt, Sampling(max_tokens=rng.randint(1, 30), seed=rng.getrandbits(40)))
        for _ in range(rng.randint(0, 4)):
            if driver.core.busy:
                driver.step()
    for identity, completion in driver.finish().items():
        expected = plain_logprobs(folder, driver.prompts[identity], completion)
        assert len(completion.ids) >= 1
        np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=1e-5)
    assert driver.core.stats()["cache_bytes"] > 0


def test_temperature_scales_the_recorded_logprobs(model_folder: Folder, plain_logprobs: Plain) -> None:
    folder = model_folder("qwen3")
    driver = Driver(folder)
    for index, prompt in enumerate(prompts(2, 6)):
        driver.add(prompt, Sampling(max_tokens=12, seed=index, temperature=0.5 + index / 4))
    for identity, completion in driver.finish().items():
        expected = plain_logprobs(folder, driver.prompts[identity], completion, 0.5 + identity / 4)
        np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=1e-5)


def test_temperature_zero_takes_the_likeliest_token_with_logprob_zero(model_folder: Folder) -> None:
    folder = model_folder("llama")
    prompt = next(prompts(3, 1))
    completion = Driver(folder).sample(prompt, Sampling(max_tokens=10, temperature=0.0))
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(10):
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    assert list(completion.ids) == ids[len(prompt) :]
    assert list(completion.logprobs) == [0.0] * 10


@pytest.mark.parametrize("truncated", [False, True])
def test_a_seed_gives_the_same_completion_alone_and_among_32(model_folder: Folder, truncated: bool) -> None:
    folder = model_folder("qwen3")
    kind = {"top_k": 20, "top_p": 0.9, "min_p": 0.01} if truncated else {}
    requests = [(prompt, Sampling(max_tokens=24, seed=index, **kind)) for index, prompt in enumerate(prompts(4, 32))]  # type: ignore[arg-type]
    together = Driver(folder, Limits(rows=20, prefill_tokens=50))
    for prompt, sampling in requests:
        together.add(prompt, sampling)
    batch = together.finish()
    for index in (0, 7, 19, 31):
        alone = Driver(folder).sample(*requests[index])
        assert list(alone.ids) == list(batch[index].ids)
        np.testing.assert_allclose(alone.logprobs, batch[index].logprobs, atol=1e-5)


def test_different_seeds_differ(model_folder: Folder) -> None:
    driver = Driver(model_folder("qwen3"))
    prompt = next(prompts(5, 1))
    completions = {tuple(driver.sample(prompt, Sampling(max_tokens=16, seed=seed)).ids) for seed in range(8)}
    assert len(completions) == 8


def test_a_stop_token_ends_the_completion_and_is_part_of_it(model_folder: Folder) -> None:
    driver = Driver(model_folder("qwen3"))
    prompt = next(prompts(6, 1))
    free = driver.sample(prompt, Sampling(max_tokens=20, seed=1))
    stop = free.ids[5]
    stopped = driver.sample(prompt, Sampling(max_tokens=20, seed=1, stop_token_ids=(stop,)))
    assert list(stopped.ids) == list(free.ids[: list(free.ids).index(stop) + 1])
    assert (free.finish_reason, stopped.finish_reason) == ("length", "stop")


def test_the_context_ends_a_completion(model_folder: Folder, plain_logprobs: Plain) -> None:
    folder = model_folder("llama")
    prompt = next(prompts(7, 1, 250, 250))
    completion = Driver(folder).sample(prompt, Sampling(max_tokens=100, seed=1))
    assert (len(completion.ids), completion.finish_reason) == (6, "length")
    np.testing.assert_allclose(completion.logprobs, plain_logprobs(folder, prompt, completion).numpy(), atol=1e-5)


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3_text"])
def test_ten_turns_prefill_little_more_than_they_add(
    architecture: str, model_folder: Folder, plain_logprobs: Plain
) -> None:
    folder = model_folder(architecture)
    driver = Driver(folder)
    rng = random.Random(8)
    prompt = [rng.randrange(VOCAB) for _ in range(30)]
    added = len(prompt)
    for turn in range(10):
        completion = driver.sample(prompt, Sampling(max_tokens=8, seed=turn), session="rollout")
        np.testing.assert_allclose(completion.logprobs, plain_logprobs(folder, prompt, completion).numpy(), atol=1e-5)
        observation = [rng.randrange(VOCAB) for _ in range(12)]
        prompt = [*prompt, *completion.ids, *observation]
        added += len(observation)
    counters = driver.core.counters
    assert counters.prompt_tokens - counters.cached_tokens <= 1.3 * (added - len(observation))
    assert driver.core.stats()["parked"] == 1


def test_identical_prompts_that_arrive_together_are_computed_once(model_folder: Folder, plain_logprobs: Plain) -> None:
    folder = model_folder("qwen3")
    driver = Driver(folder)
    prompt = next(prompts(9, 1, 40, 40))
    for seed in range(8):
        driver.add(prompt, Sampling(max_tokens=6, seed=seed))
    completions = driver.finish()
    assert driver.core.counters.cached_tokens == 7 * 39
    for completion in completions.values():
        np.testing.assert_allclose(completion.logprobs, plain_logprobs(folder, prompt, completion).numpy(), atol=1e-5)


def test_a_common_preamble_is_computed_once_and_serves_later_prompts(
    model_folder: Folder, plain_logprobs: Plain
) -> None:
    folder = model_folder("llama")
    driver = Driver(folder, Limits(rows=4))
    preamble = next(prompts(10, 1, 50, 50))
    for tail in range(6):
        driver.add([*preamble, tail, 1], Sampling(max_tokens=4, seed=tail))
    driver.finish()
    late = driver.add([*preamble, 9, 9, 9], Sampling(max_tokens=4, seed=99))
    for identity, completion in driver.finish().items():
        expected = plain_logprobs(folder, driver.prompts[identity], completion)
        np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=1e-5)
    assert late in driver.done
    assert driver.core.counters.cached_tokens == 6 * 50


def test_a_session_goes_on_while_others_start_from_its_parked_entry(
    model_folder: Folder, plain_logprobs: Plain
) -> None:
    folder = model_folder("qwen3")
    driver = Driver(folder)
    prompt = next(prompts(16, 1, 30, 30))
    first = driver.sample(prompt, Sampling(max_tokens=6, seed=0), session="a")
    for tail, session in ((1, "a"), (2, "b"), (3, "c")):
        driver.add([*prompt, *first.ids, tail], Sampling(max_tokens=5, seed=tail), session)
    for identity, completion in driver.finish().items():
        expected = plain_logprobs(folder, driver.prompts[identity], completion)
        np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=1e-5)
    assert driver.core.counters.cached_tokens == 3 * 35


def test_parked_prefixes_keep_to_their_memory(model_folder: Folder) -> None:
    driver = Driver(model_folder("qwen3"), prefix_bytes=200_000)
    for index, prompt in enumerate(prompts(11, 20, 30, 60)):
        driver.sample(prompt, Sampling(max_tokens=5, seed=index), session=str(index))
    stats = driver.core.stats()
    assert 0 < stats["parked_bytes"] <= 200_000
    assert 0 < stats["parked"] < 20


def test_weights_are_replaced_under_running_and_for_later_calls(model_folder: Folder) -> None:
    """What is drawn under one version has its log-probabilities; nothing stale is reused."""
    folder = model_folder("qwen3")
    driver = Driver(folder, Limits(rows=4))
    old = AutoModelForCausalLM.from_pretrained(folder).eval()
    new = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    identities = [
        driver.add(prompt, Sampling(max_tokens=12, seed=index)) for index, prompt in enumerate(prompts(12, 6, 20, 30))
    ]
    for _ in range(5):
        driver.step()
    names = {name: tensor.numpy() for name, tensor in new.state_dict().items() if name != "lm_head.weight"}
    with torch.inference_mode():
        driver.core.update_weights(names, 7)
    completions = driver.finish()
    for identity in identities:
        completion = completions[identity]
        before = list(completion.policy_versions).count(0)
        assert list(completion.policy_versions) == [0] * before + [7] * (12 - before)
        assert before == (5 if identity < 4 else 0)
        model, upto = (old, before) if before else (new, 12)
        expected = recompute(model, driver.prompts[identity], completion)
        np.testing.assert_allclose(completion.logprobs[:upto], expected[:upto].numpy(), atol=1e-5)
    again = driver.sample(driver.prompts[0], Sampling(max_tokens=12, seed=5))
    np.testing.assert_allclose(again.logprobs, recompute(new, driver.prompts[0], again).numpy(), atol=1e-5)
    assert set(again.policy_versions) == {7}


def test_a_prompt_half_computed_when_weights_change_is_computed_anew(model_folder: Folder) -> None:
    folder = model_folder("llama")
    driver = Driver(folder, Limits(prefill_tokens=10))
    new = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.mul_(1.1)
    prompt = next(prompts(13, 1, 40, 40))
    identity = driver.add(prompt, Sampling(max_tokens=5, seed=0))
    driver.step()
    with torch.inference_mode():
        driver.core.update_weights(new.state_dict(), 1)
    completion = driver.finish()[identity]
    np.testing.assert_allclose(completion.logprobs, recompute(new, prompt, completion).numpy(), atol=1e-5)
    assert set(completion.policy_versions) == {1}


def test_abort_gives_what_there_is_and_forgets_the_session(model_folder: Folder) -> None:
    driver = Driver(model_folder("qwen3"))
    prompt = next(prompts(14, 1, 20, 20))
    driver.sample(prompt, Sampling(max_tokens=4, seed=1), session="a")
    running = driver.add(prompt[:10], Sampling(max_tokens=50, seed=1), session="a")
    other = driver.add(prompt[:10], Sampling(max_tokens=5, seed=2), session="b")
    for _ in range(4):
        driver.step()
    ended = dict(driver.core.abort("a"))
    assert list(ended) == [running]
    assert ended[running].finish_reason == "abort"
    assert len(ended[running].ids) == 4
    assert len(driver.finish()[other].ids) == 5
    assert driver.core.stats()["parked"] == 1


def test_a_cancelled_sequence_frees_its_row(model_folder: Folder) -> None:
    driver = Driver(model_folder("qwen3"), Limits(rows=1))
    first = driver.add([1, 2, 3], Sampling(max_tokens=200, seed=1))
    second = driver.add([4, 5, 6], Sampling(max_tokens=3, seed=1))
    for _ in range(3):
        driver.step()
    driver.core.cancel(first)
    assert list(driver.finish()) == [second]
    assert driver.core.stats()["running"] == 0


def test_cancelling_a_prompt_that_others_wait_for_lets_them_go_on(model_folder: Folder) -> None:
    driver = Driver(model_folder("qwen3"), Limits(prefill_tokens=5))
    prompt = next(prompts(15, 1, 40, 40))
    first = driver.add(prompt, Sampling(max_tokens=3, seed=1))
    second = driver.add(prompt, Sampling(max_tokens=3, seed=2))
    driver.step()
    assert driver.core.stats()["waiting"] == 1
    driver.core.cancel(first)
    assert list(driver.finish()) == [second]
