"""What `agentfly doctor` says of sandboxes."""

from __future__ import annotations

import pytest

from agentfly.errors import ConfigError
from agentfly.resources.sandbox import probe
from agentfly.resources.sandbox.bubblewrap import launch


def test_a_machine_that_can_is_told_so() -> None:
    checks = {check.name: check for check in probe()}
    assert (checks["sandbox (bubblewrap)"].found or "").startswith("starts, with Python 3.")
    assert all(check.found is not None for check in checks.values() if check.needed)
    with pytest.warns(UserWarning, match="isolate nothing"):
        checks = {check.name: check for check in probe("process")}
    assert checks["isolation"].found is None
    assert checks["sandbox (process)"].found is not None


def test_what_is_missing_is_said_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise ConfigError("sandboxes need bubblewrap: pip install 'agentfly-rl[sandbox]'")

    monkeypatch.setattr(launch, "bwrap_path", missing)
    last = probe()[-1]
    assert last.found is None
    assert "pip install" in last.advice
