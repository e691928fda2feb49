"""Replacing weights: tied names, wrong names, wrong shapes, read-only arrays, low-precision tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from agentfly.errors import ModelError
from agentfly.models.local.weights import WeightTable

Folder = Callable[[str], str]


@pytest.fixture
def tied(model_folder: Folder) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(model_folder("qwen3"))


def changed(model: PreTrainedModel) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy() + 1.0 for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", ["lm_head.weight", "model.embed_tokens.weight"])
def test_one_name_of_tied_weights_is_enough(tied: PreTrainedModel, name: str) -> None:
    weights = changed(tied)
    weights[name] = weights.pop("model.embed_tokens.weight")
    WeightTable(tied).replace(weights)
    assert np.array_equal(tied.lm_head.weight.detach().numpy(), weights[name])
    assert tied.lm_head.weight.data_ptr() == tied.model.embed_tokens.weight.data_ptr()


def test_both_names_of_tied_weights_may_come(tied: PreTrainedModel) -> None:
    weights = changed(tied)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    WeightTable(tied).replace(weights)


def test_a_wrong_update_says_what_is_wrong_and_changes_nothing(tied: PreTrainedModel) -> None:
    before = {name: parameter.clone() for name, parameter in tied.named_parameters()}
    table = WeightTable(tied)
    good = changed(tied)
    without = dict(good)
    del without["model.norm.weight"]
    with pytest.raises(ModelError, match=r"'model\.norm\.weight' is missing"):
        table.replace(without)
    with pytest.raises(ModelError, match="no weight 'nonsense'"):
        table.replace(good | {"nonsense": np.zeros(1)})
    with pytest.raises(ModelError, match=r"'model\.norm\.weight' has shape \(3,\), the model's is \(32,\)"):
        table.replace(good | {"model.norm.weight": np.zeros(3)})
    with pytest.raises(ModelError, match="no array of numbers"):
        table.replace(good | {"model.norm.weight": np.array(["x"] * 32)})
    for name, parameter in tied.named_parameters():
        assert torch.equal(parameter, before[name])


def test_read_only_and_strided_arrays_are_taken_without_a_warning(
    tied: PreTrainedModel, recwarn: pytest.WarningsRecorder
) -> None:
    weights = changed(tied)
    for value in weights.values():
        value.flags.writeable = False
    weights["model.norm.weight"] = np.arange(64, dtype=np.float64)[::2]
    WeightTable(tied).replace(weights)
    assert tied.model.norm.weight.tolist() == list(range(0, 64, 2))
    assert not recwarn.list


def test_low_precision_tensors_are_taken(tied: PreTrainedModel) -> None:
    weights: dict[str, np.ndarray | torch.Tensor] = dict(changed(tied))
    weights["model.norm.weight"] = torch.full((32,), 1.5, dtype=torch.bfloat16)
    WeightTable(tied).replace(weights)
    assert tied.model.norm.weight.tolist() == [1.5] * 32
