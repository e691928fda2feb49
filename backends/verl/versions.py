"""Which verl this works with, checked before anything starts."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet

from agentfly.errors import ConfigError

SUPPORTED = SpecifierSet("==0.9.1")
_NEEDED = {
    "verl": SUPPORTED,
    # verl's own metadata allows older ones, its V1 trainer does not run with them.
    "tensordict": SpecifierSet(">=0.10,<0.11"),
    "TransferQueue": SpecifierSet(">=0.1.10"),
}


def check_versions() -> None:
    """See that the installed verl, and what it needs here, are ones that this was tested with.

    Raises:
        ConfigError: one line with all that is missing or of another version.
    """
    problems = []
    for package, versions in _NEEDED.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            problems.append(f"{package}{versions} is missing")
            continue
        if not versions.contains(found, prereleases=True):
            problems.append(f"{package} {found} is installed, it must be {versions}")
    if problems:
        raise ConfigError(f"backend verl: {'; '.join(problems)}: pip install 'agentfly-rl[verl]'")
