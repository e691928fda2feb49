"""Code that means harm: it gets nowhere, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ATTACKS = 60


def attack(secret: Path, cgroups: str, *prefix: str) -> dict[str, str]:
    script = Path(__file__).with_name("hostile.py")
    private = ["unshare", "--mount", "--propagation", "private"]
    process = subprocess.run(
        [*private, *prefix, sys.executable, str(script), str(secret), cgroups],
        env={**os.environ, "AGENTFLY_SECRET": "top secret"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    report: dict[str, str] = json.loads(process.stdout)
    return report


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("top secret")
    os.chmod(path, 0o666)
    for folder in path.parents:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o055)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("cgroups", ["counted", "uncounted"])
def test_no_attack_gets_anywhere(secret: Path, cgroups: str) -> None:
    # Without root a mount namespace of one's own needs a user namespace around it, in which we are root again.
    report = attack(secret, cgroups, *([] if os.geteuid() == 0 else ["--map-root-user"]))
    assert {name: outcome for name, outcome in report.items() if outcome != "held"} == {}
    assert len(report) > ATTACKS


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else to try it as an ordinary user")
def test_an_ordinary_user_is_as_safe(secret: Path) -> None:
    become = [shutil.which("setpriv") or "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    report = attack(secret, "counted", *become)
    assert {name: outcome for name, outcome in report.items() if outcome != "held"} == {}
    assert len(report) > ATTACKS
