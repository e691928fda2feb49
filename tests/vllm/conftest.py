"""What the tests of the vllm engine share. They run in the environment that scripts/vllm-env makes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

# Before vllm or ray is imported anywhere.
os.environ.update(
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    RAY_AUTH_MODE="disabled",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_raylet_start_wait_time_s="300",
)
os.environ.pop("RAY_ADDRESS", None)
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch
from assets import make_model, options

from agentfly.models.vllm.engine import VllmEngine

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tied(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model whose output layer is its embedding."""
    return make_model(tmp_path_factory.mktemp("tied"), tied=True)


@pytest.fixture(scope="session")
def untied(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model with an output layer of its own."""
    return make_model(tmp_path_factory.mktemp("untied"), tied=False)


@pytest.fixture(scope="session")
async def engine(tied: str) -> AsyncIterator[VllmEngine]:
    """The real vLLM with the first model; tests that change its weights change them back."""
    engine = VllmEngine(tied, **options())
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture(scope="session")
async def untied_engine(untied: str) -> AsyncIterator[VllmEngine]:
    """The real vLLM with the second model."""
    engine = VllmEngine(untied, **options())
    await engine.start()
    yield engine
    await engine.stop()
