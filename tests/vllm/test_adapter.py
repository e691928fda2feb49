"""A LoRA adapter that all calls use, and another in its place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from assets import Weights, difference, logprobs, options, weights_of
from safetensors.numpy import save_file

from agentfly.errors import ModelError
from agentfly.models.engine import Sampling
from agentfly.models.vllm.engine import VllmEngine

PROMPT = [(i * 7) % 300 + 9 for i in range(100)]
RANK, ALPHA = 8, 16


def make_adapter(folder: Path, path: str, seed: int) -> Weights:
    """Save an adapter of the first layer as PEFT does; returns the weights that it comes to."""
    draw = np.random.default_rng(seed)
    merged, tensors = weights_of(path), {}
    for part in ("q_proj", "v_proj"):
        name = f"model.layers.0.self_attn.{part}"
        rows, columns = merged[f"{name}.weight"].shape
        a = draw.standard_normal((RANK, columns)).astype(np.float32) * 0.2
        b = draw.standard_normal((rows, RANK)).astype(np.float32) * 0.2
        tensors |= {f"base_model.model.{name}.lora_A.weight": a, f"base_model.model.{name}.lora_B.weight": b}
        merged[f"{name}.weight"] = merged[f"{name}.weight"] + ALPHA / RANK * b @ a
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": ["q_proj", "v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return merged


@pytest.fixture
async def adapted(tied: str, tmp_path: Path) -> AsyncIterator[tuple[VllmEngine, Weights]]:
    """An engine with an adapter, and the weights that it comes to."""
    merged = make_adapter(tmp_path / "first", tied, 1)
    engine = VllmEngine(tied, **options(adapter=str(tmp_path / "first"), max_lora_rank=RANK))
    await engine.start()
    yield engine, merged
    await engine.stop()


async def check(engine: VllmEngine, path: str, weights: Weights, version: int) -> None:
    completion = await engine.generate(PROMPT, Sampling(max_tokens=30))
    assert set(completion.policy_versions) == {version}
    assert difference(completion.logprobs, logprobs(path, PROMPT, completion.ids, weights=weights)) < 1e-4
    # Without the adapter they would be others.
    assert difference(completion.logprobs, logprobs(path, PROMPT, completion.ids)) > 0.01


async def test_calls_use_the_adapter_and_its_successor(
    adapted: tuple[VllmEngine, Weights], tied: str, tmp_path: Path
) -> None:
    engine, merged = adapted
    await check(engine, tied, merged, 0)
    second = make_adapter(tmp_path / "second", tied, 2)
    await engine.update_adapter(str(tmp_path / "second"), 1)
    await check(engine, tied, second, 1)
    with pytest.raises(ModelError, match="can't load the adapter"):
        await engine.update_adapter(str(tmp_path / "nowhere"), 2)
    await check(engine, tied, second, 1)
