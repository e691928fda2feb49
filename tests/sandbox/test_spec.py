"""What is told about a spec that can't be, before anything starts."""

from __future__ import annotations

import pickle

import pytest

from agentfly.errors import ConfigError
from agentfly.resources.sandbox import SandboxSpec


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"memory": "lots"}, "memory is 'lots'.*such as 512MiB"),
        ({"disk": "0MiB"}, "disk is '0MiB'"),
        ({"provider": "hope"}, "no sandbox provider 'hope'; there are: bubblewrap, docker, e2b, process, sandlock"),
        ({"max_processes": 0}, "max_processes is 0"),
        ({"cpus": -1.0}, "cpus is -1.0"),
        ({"mounts": {"/proc": "/usr"}}, "nothing can be shown at '/proc'"),
        ({"mounts": {"data": "/usr"}}, "nothing can be shown at 'data'"),
        ({"env": {"A=B": ""}}, "'A=B' can't be an environment variable"),
        ({"provider": "process", "require": ["disk"]}, "'process' can't limit disk"),
        ({"provider": "process", "mounts": {"/data": "/usr"}}, "nothing can be shown to it"),
    ],
)
def test_a_wrong_spec_is_told(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=f"sandbox spec 'Sandbox'.*{told}"):
        SandboxSpec(**settings)  # type: ignore[arg-type]


def test_every_setting_makes_another_pool() -> None:
    others: list[dict[str, object]] = [
        {},
        {"memory": "2GiB"},
        {"disk": "2MiB"},
        {"cpus": 2.0},
        {"max_processes": 7},
        {"max_files": 7},
        {"max_output": 7},
        {"timeout": 7.0},
        {"network": True},
        {"env": {"A": "B"}},
        {"mounts": {"/data": "/usr"}},
        {"python": "/usr/bin/python3"},
        {"packages": True},
        {"require": ("disk",)},
        {"provider": "process"},
        {"slots": 3},
    ]
    specs = [SandboxSpec(**settings) for settings in others]  # type: ignore[arg-type]
    assert len({spec.key for spec in specs}) == len(others)
    for spec in specs:
        assert pickle.loads(pickle.dumps(spec)).key == spec.key
