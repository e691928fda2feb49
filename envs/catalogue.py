"""What environments there are: for `agentfly envs`, and for names in Gymnasium."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from agentfly.envs.listing import ADAPTERS, PREBUILT, Entry


@dataclass(frozen=True)
class Verdict:
    """Whether an environment can run on this machine.

    Attributes:
        missing: what isn't there; empty when it can run.
        advice: what to do about it.
    """

    missing: tuple[str, ...]
    advice: str = ""

    @property
    def runs(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


CATALOGUE: Final[Sequence[Entry]] = (*PREBUILT, *ADAPTERS)


def verdict(entry: Entry) -> Verdict:
    """Look at this machine for what an environment needs."""
    modules = tuple(name for name in entry.modules if find_spec(name) is None)
    programs = tuple(name for name in entry.programs if shutil.which(name) is None)
    advice = []
    if modules:
        advice.append(
            f"pip install 'agentfly-rl[{entry.extra}]'" if entry.extra else f"pip install {' '.join(modules)}"
        )
    if programs:
        advice.append(f"install {', '.join(programs)}")
    return Verdict(modules + programs, "; ".join(advice))
