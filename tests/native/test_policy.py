from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from agentfly.backends.native.batching import Sample, collate
from agentfly.backends.native.policy import Policy
from native.toys import VOCAB, segment, tiny_policy
from transformers import AutoConfig, AutoModelForCausalLM

from agentfly.errors import ConfigError
from agentfly.models.tiny import build_model

SAMPLES = [
    Sample(segment([1, 2, 3, 4, 5], [2, 4]), 1.0, 1.0),
    Sample(segment([6, 7, 8], [1, 2]), 1.0, 1.0),
]


def expected(policy: Policy, temperature: float) -> list[float]:
    """Log-probabilities from full logits, one row at a time and without padding."""
    values = []
    for sample in SAMPLES:
        ids = torch.from_numpy(sample.segment.ids).long()
        logprobs = (policy.model(input_ids=ids[None]).logits[0] / temperature).log_softmax(-1)
        values += [float(logprobs[place - 1, ids[place]].detach()) for place in np.flatnonzero(sample.segment.mask)]
    return values


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_are_those_of_the_whole_model_without_padding(tmp_path: Path, temperature: float) -> None:
    policy = tiny_policy(tmp_path, temperature=temperature)
    scores = policy.score(collate(SAMPLES))
    assert scores.logprobs.tolist() == pytest.approx(expected(policy, temperature), abs=1e-5)


def test_padding_changes_nothing(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    padded = policy.score(collate(SAMPLES, padding_id=9, length=20)).logprobs
    torch.testing.assert_close(padded, policy.score(collate(SAMPLES)).logprobs)


def test_a_model_that_caps_its_logits_is_scored_with_the_cap(tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "gemma2",
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=0.5,
        initializer_range=1.0,
    )
    torch.manual_seed(0)
    policy = Policy(AutoModelForCausalLM.from_config(config))
    scores = policy.score(collate(SAMPLES))
    assert scores.logprobs.tolist() == pytest.approx(expected(policy, 1.0), abs=1e-5)


def test_weights_are_copies_under_hugging_face_names_and_tied_ones_come_once(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    weights = policy.weights()
    assert "model.embed_tokens.weight" in weights
    assert "lm_head.weight" not in weights
    weights["model.embed_tokens.weight"][:] = 0
    assert float(policy.model.get_input_embeddings().weight.detach().abs().sum()) > 0
    build_model(tmp_path / "untied", vocab_size=VOCAB, hidden=16, layers=1, heads=2, tied=False)
    assert "lm_head.weight" in Policy.load(tmp_path / "untied", device="cpu").weights()


def test_missing_folders_and_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model folder"):
        Policy.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no causal language model"):
        Policy.load(tmp_path)
