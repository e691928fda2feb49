"""`agentfly doctor`."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table

_DISTRIBUTION = "agentfly-rl"
_DEVELOPERS_OWN = {"test", "dev"}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        needed: AgentFly can't work without it.
        found: what there is; None when it is missing.
        advice: what to do about that.
    """

    name: str
    found: str | None
    advice: str = ""
    needed: bool = False


def run_doctor() -> int:
    """Print a table; exit code 1 when something is missing that AgentFly can't do without."""
    checks = [*_machine(), *_packages(), *_sandbox()]
    table = Table("", "what", "found", "to do")
    for check in checks:
        mark = "[green]ok[/]" if check.found is not None else "[red]missing[/]" if check.needed else "[yellow]-[/]"
        table.add_row(mark, check.name, check.found or "", check.advice if check.found is None else "")
    Console().print(table)
    return int(any(check.needed and check.found is None for check in checks))


def _machine() -> list[Check]:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return [
        Check("Python", platform.python_version(), needed=True),
        Check("CPUs", str(os.cpu_count())),
        Check("memory", f"{gigabytes:.0f} GB"),
        Check("GPU", _gpu(), "none found: models run on the CPU"),
    ]


def _gpu() -> str | None:
    if find_spec("torch") is None:
        return None
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _packages() -> list[Check]:
    """Core requirements one by one; of each extra what is missing."""
    core: list[Check] = []
    extras: dict[str, list[tuple[str, str | None]]] = {}
    for line in requires(_DISTRIBUTION) or []:
        requirement = Requirement(line)
        found = _installed(requirement)
        if requirement.marker is None:
            advice = f"pip install '{requirement.name}{requirement.specifier}'"
            core.append(Check(requirement.name, found, advice, needed=True))
            continue
        extra = str(requirement.marker).partition('extra == "')[2].rstrip('"')
        if extra not in _DEVELOPERS_OWN:
            extras.setdefault(extra, []).append((requirement.name, found))
    return core + [_extra(name, parts) for name, parts in sorted(extras.items())]


def _installed(requirement: Requirement) -> str | None:
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return None
    return found if requirement.specifier.contains(found, prereleases=True) else None


def _extra(name: str, parts: list[tuple[str, str | None]]) -> Check:
    missing = [package for package, found in parts if found is None]
    found = None if missing else ", ".join(f"{package} {number}" for package, number in parts)
    return Check(f"extra {name}", found, f"pip install '{_DISTRIBUTION}[{name}]' (lacks {', '.join(missing)})")


def _sandbox() -> list[Check]:
    """What sandboxes need, and whether one starts; of the second choice too, where it is installed."""
    from agentfly.resources.sandbox import probe

    found = [*probe(), *(probe("sandlock") if find_spec("sandlock") else [])]
    return [Check(check.name, check.found, check.advice) for check in found]
