"""The wheel has everything, and `import agentfly` is light."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import agentfly

ROOT = Path(__file__).parent.parent


def test_setup_cfg_names_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    named = set(config["options"]["packages"].split())
    there = set()
    for top, package in (("agentfly", "agentfly"), ("backends", "agentfly.backends"), ("envs", "agentfly.envs")):
        for init in (ROOT / top).rglob("__init__.py"):
            there.add(".".join([package, *init.parent.relative_to(ROOT / top).parts]))
    assert named == there


def test_importing_agentfly_loads_nothing_heavy() -> None:
    heavy = "torch", "transformers", "pyarrow", "renderers"
    code = f"import agentfly, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in agentfly.__all__:
        assert getattr(agentfly, name) is not None
    assert agentfly.__all__ == sorted(agentfly.__all__, key=lambda name: (name.islower(), name))
