"""What the tests of the verl backend share. They run in the environment that scripts/verl-env makes."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

# Before verl or ray is imported anywhere.
os.environ.update(
    VERL_PLATFORM="cpu",
    VERL_USE_EXTERNAL_MODULES="cpu_platform",
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    RAY_AUTH_MODE="disabled",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_raylet_start_wait_time_s="120",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    PYTHONPATH=str(Path(__file__).parent),
    DIARY=tempfile.mkstemp(prefix="diary-")[1],  # of the test agent's resource, which reads it when it is imported
)
os.environ.pop("RAY_ADDRESS", None)
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that talks as the test agent wants it."""
    from assets import make_model

    folder = tmp_path_factory.mktemp("assets") / "model"
    make_model(folder)
    return folder


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen rows in verl's form."""
    from assets import write_dataset

    file = tmp_path_factory.mktemp("data") / "train.parquet"
    write_dataset(file, 16)
    return file
