"""The program that runs inside, made ready to be handed in."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from agentfly.resources.sandbox import inside
from agentfly.resources.sandbox.inside.frames import Value
from agentfly.resources.sandbox.settings import SandboxSettings

# In the order in which they import each other.
_MODULES = (
    "signals",
    "frames",
    "output",
    "limits",
    "loop",
    "watch",
    "files",
    "cell",
    "interpreter",
    "command",
    "jobs",
    "background",
    "controller",
)

# Run by the interpreter inside: its arguments are the socket and the descriptor that the bundle is read from.
BOOT = """
import marshal, posix, sys
host, bundle = map(int, sys.argv[1:])
for name, code in marshal.loads(posix.pread(bundle, posix.fstat(bundle).st_size, 0)):
    module = type(sys)(name)
    sys.modules[name] = module
    exec(code, module.__dict__)
module.main(host)
"""


@cache
def bundle(compiled: bool) -> bytes:
    """All modules, by name.

    Args:
        compiled: by this Python, for the very same version of it; else as source, for any.
    """
    modules = []
    for name in _MODULES:
        source = (Path(inside.__path__[0]) / f"{name}.py").read_text()
        full_name = f"{inside.__name__}.{name}"
        code = compile(source, f"<sandbox {name}>", "exec", dont_inherit=True, optimize=2) if compiled else source
        modules.append((full_name, code))
    return marshal.dumps(modules, 4 if compiled else 2)


def first_message(
    settings: SandboxSettings,
    folders: Sequence[str],
    *,
    packages: Sequence[str] = (),
    own_counts: bool = False,
    watch_memory: bool = False,
) -> dict[str, Value]:
    """What the program inside is told first.

    Args:
        folders: the workspace, and others that may be used.
        packages: folders that its Python imports from.
        own_counts: processes and files are counted for this sandbox alone, so that limits of them hold for it. What
            the whole user or the machine counts isn't limited from inside.
        watch_memory: nobody else limits the memory of all processes together.
    """
    return {
        "memory": settings.memory,
        "watch_memory": settings.memory if watch_memory else 0,
        "processes": settings.max_processes if own_counts else 0,
        "file_size": settings.disk,
        "max_files": settings.max_files if own_counts else 0,
        "max_output": settings.max_output,
        "packages": "\0".join(packages),
        "folders": "\0".join(folders),
    }
