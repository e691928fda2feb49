"""What the embedded engine refuses at its start, with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agentfly.errors import ModelError
from agentfly.models.local import attention
from agentfly.models.local.loading import load_model

Folder = Callable[[str], str]


def test_the_context_is_the_smaller_limit(model_folder: Folder) -> None:
    folder = model_folder("qwen3")
    assert load_model(folder).max_context == 256
    assert load_model(folder, max_context=100).max_context == 100
    assert load_model(folder, max_context=1000).max_context == 256


def test_low_precision_runs(model_folder: Folder) -> None:
    model = load_model(model_folder("llama"), dtype="bfloat16")
    assert model.shape.dtype == torch.bfloat16
    assert model.shape.bytes_per_token == 2 * 2 * 2 * 8 * 2


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="can't load a causal language model from"):
        load_model(str(tmp_path))


def test_an_unknown_type_is_named(model_folder: Folder) -> None:
    for name in ("float99", "int64", "nn"):
        with pytest.raises(ModelError, match=name):
            load_model(model_folder("qwen3"), dtype=name)


def test_soft_capped_attention_is_refused(model_folder: Folder) -> None:
    with pytest.raises(ModelError, match="softcap"):
        load_model(model_folder("gemma2"))


def test_positions_that_depend_on_the_batch_are_refused(model_folder: Folder, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(model_folder("llama")).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="dynamic rotary positions"):
        load_model(str(tmp_path))


def test_recurrent_layers_are_refused_before_any_weight_is_read(tmp_path: Path) -> None:
    AutoConfig.for_model("qwen3_next").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="linear_attention"):
        load_model(str(tmp_path))


def test_a_model_that_comes_out_different_is_refused(model_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof at the start sees it when the engine's attention leaves something out."""
    true = attention.rows_attention

    def wrong(*arguments: object, scaling: float, **extra: object) -> object:
        return true(*arguments, scaling=scaling * 1.2, **extra)  # type: ignore[arg-type]

    monkeypatch.setattr(attention, "rows_attention", wrong)
    with pytest.raises(ModelError, match="log-probabilities are off by"):
        load_model(model_folder("qwen3"))
