"""`backend: verl` where verl isn't installed, as in the environment of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from agentfly.backends.verl.backend import VerlBackend

from agentfly.errors import ConfigError
from agentfly.training.job import TrainingJob


def test_what_is_missing_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    job = TrainingJob.model_validate(
        {"agent": "m:a", "tasks": "t.jsonl", "model": {"path": str(tmp_path)}, "backend": "verl"}
    )
    with pytest.raises(
        ConfigError, match=r"^backend verl: verl==0\.9\.1 is missing; .*: pip install 'agentfly-rl\[verl\]'$"
    ):
        VerlBackend().validate(job)
