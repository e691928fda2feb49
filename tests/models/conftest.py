"""Fixtures of the model tests: tiny models, each made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from models.tiny_models import build, recompute
from transformers import AutoModelForCausalLM, PreTrainedModel

from agentfly.models.engine import Completion


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models gain nothing from more, and on a busy machine threads wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Folder of a tiny model of an architecture, made once."""
    made: dict[str, str] = {}

    def folder(architecture: str) -> str:
        if architecture not in made:
            made[architecture] = build(tmp_path_factory.mktemp(architecture), architecture)
        return made[architecture]

    return folder


@pytest.fixture(scope="session")
def plain_logprobs() -> Callable[..., torch.Tensor]:
    """Log-probabilities of a completion by an ordinary transformers forward pass."""
    loaded: dict[str, PreTrainedModel] = {}

    def logprobs(folder: str, prompt: Sequence[int], completion: Completion, temperature: float = 1.0) -> torch.Tensor:
        if folder not in loaded:
            loaded[folder] = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        return recompute(loaded[folder], prompt, completion, temperature)

    return logprobs
