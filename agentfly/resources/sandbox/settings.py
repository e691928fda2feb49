"""What a sandbox is to be, for the provider that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SandboxSettings:
    """The part of a `SandboxSpec` that a sandbox itself needs; sizes in bytes, times in seconds."""

    provider: str
    memory: int
    disk: int
    cpus: float
    max_processes: int
    max_files: int
    max_output: int
    timeout: float
    network: bool
    env: Mapping[str, str]
    mounts: Mapping[str, str]
    python: str | None
    packages: bool
    require: tuple[str, ...]
    image: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
