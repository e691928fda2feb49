"""Draws follow the distribution whose log-probabilities are recorded, and depend on seed and position alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly.models.engine import Sampling
from agentfly.models.local.sampler import Params, draw, invert
from agentfly.models.local.uniforms import uniforms

CPU = torch.device("cpu")


def direct(logits: list[float], sampling: Sampling) -> np.ndarray:
    """The distribution, written out token by token in float64."""
    scaled = np.array(logits, np.float64) / sampling.temperature
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    order = sorted(range(len(probs)), key=lambda token: (-probs[token], token))
    if sampling.top_k:
        order = order[: sampling.top_k]
    total = sum(probs[token] for token in order)
    kept: list[int] = []
    reached = 0.0
    for token in order:
        share = probs[token] / total
        if not kept or (reached < sampling.top_p and share >= sampling.min_p * probs[order[0]] / total):
            kept.append(token)
        reached += share
    result = np.zeros(len(probs))
    result[kept] = probs[kept] / probs[kept].sum()
    return result


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    top_p=st.sampled_from([0.05, 0.4, 0.8, 0.95, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 50]),
    min_p=st.sampled_from([0.0, 0.03, 0.3, 1.0]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(samplings, st.integers(0, 1000)), min_size=1, max_size=5), st.floats(0, 1, exclude_max=True))
def test_logprobs_are_of_the_truncated_distribution(rows: list[tuple[Sampling, int]], uniform: float) -> None:
    """Rows with and without truncation in one batch; the token is where the cumulative sum passes the number."""
    logits = torch.stack([torch.randn(12, generator=torch.Generator().manual_seed(seed)) * 2 for _, seed in rows])
    params = Params.of([sampling for sampling, _ in rows], CPU)
    tokens, logprobs = draw(logits, params, torch.full((len(rows),), uniform, dtype=torch.float64))
    for row, (sampling, _) in enumerate(rows):
        expected = direct(logits[row].tolist(), sampling)
        token = int(tokens[row])
        assert expected[token] > 0
        assert float(logprobs[row]) == pytest.approx(np.log(expected[token]), abs=1e-5)
        cumulative = np.cumsum(expected)
        assert cumulative[token] - expected[token] - 1e-6 <= uniform <= cumulative[token] + 1e-6


def test_draws_pass_a_chi_square_test() -> None:
    """Tokens drawn with consecutive positions of a few seeds have the frequencies of the distribution."""
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0, 0.5, -3.0]])
    count = 60_000
    uniform = uniforms(np.arange(count, dtype=np.uint64) // np.uint64(1000), np.arange(count, dtype=np.uint64))
    params = Params.of([Sampling(temperature=1.3)] * count, CPU)
    tokens, _ = draw(logits.expand(count, -1), params, torch.from_numpy(uniform))
    expected = (logits[0] / 1.3).softmax(0).double() * count
    statistic = ((torch.bincount(tokens, minlength=6) - expected) ** 2 / expected).sum()
    assert statistic < 20.5  # the 0.001 quantile of 5 degrees of freedom


def test_uniform_numbers_look_uniform_and_independent() -> None:
    seeds, positions = np.meshgrid(np.arange(200, dtype=np.uint64), np.arange(200, dtype=np.uint64))
    numbers = uniforms(seeds, positions)
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 0.01
    assert len(np.unique(numbers)) == numbers.size
    for shifted in (numbers[1:, :], numbers[:, 1:]):  # neighbours in position, then in seed
        aligned = numbers[: shifted.shape[0], : shifted.shape[1]]
        assert abs(np.corrcoef(aligned.ravel(), shifted.ravel())[0, 1]) < 0.02


def test_uniform_numbers_dont_depend_on_the_batch() -> None:
    seeds = np.array([3, 2**63, 2**64 - 1, 7], np.uint64)
    positions = np.array([0, 5, 2**40, 9], np.uint64)
    together = uniforms(seeds, positions)
    alone = [uniforms(seeds[i : i + 1], positions[i : i + 1])[0] for i in range(4)]
    assert together.tolist() == alone


@settings(deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 1e-12, 0.25, 0.5, 0.999999, 1.0 - 2.0**-53]))
def test_a_token_of_probability_zero_is_never_drawn(seed: int, uniform: float) -> None:
    """In both code paths, at the edges of the range, wherever the zeros lie."""
    generator = torch.Generator().manual_seed(seed)
    for vocabulary in (7, 5000):
        probs = torch.rand(1, vocabulary, generator=generator)
        probs *= torch.rand(1, vocabulary, generator=generator) > 0.9
        probs[0, seed % vocabulary] = 1e-8
        token = int(invert(probs, torch.tensor([uniform], dtype=torch.float64)))
        assert probs[0, token] > 0


def test_large_vocabularies_draw_as_small_ones_do() -> None:
    probs = torch.rand(40, 9001, generator=torch.Generator().manual_seed(0)).softmax(-1)
    uniform = torch.rand(40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    cumulative = probs.double().cumsum(-1)
    expected = torch.searchsorted(cumulative, uniform.unsqueeze(1) * cumulative[:, -1:], right=True).squeeze(1)
    assert torch.equal(invert(probs, uniform), expected)


def test_greedy_rows_take_the_largest_among_others_that_draw() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [0.0, 3.0, 1.0]])
    params = Params.of([Sampling(temperature=0.0), Sampling()], CPU)
    tokens, logprobs = draw(logits, params, torch.tensor([0.0, 0.0], dtype=torch.float64))
    assert tokens.tolist() == [1, 0]
    assert logprobs[0] == 0.0
    assert logprobs[1] == logits[1].log_softmax(0)[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_no_number_stays_visible(temperature: float) -> None:
    logits = torch.tensor([[0.0, float("nan"), 1.0]])
    _, logprobs = draw(logits, Params.of([Sampling(temperature=temperature)], CPU), torch.tensor([0.5]).double())
    assert torch.isnan(logprobs).all()
