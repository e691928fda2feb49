"""The filter of system calls."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from agentfly.errors import ConfigError
from agentfly.resources.sandbox.bubblewrap import syscalls

_EPERM, _ENOSYS = 1, 38
_INT = 0xFFFFFFFF  # the kernel looks at the lower half of an int argument only, so must the filter


@cache
def filter_program(counted_memory: bool) -> bytes:
    """The compiled filter.

    Args:
        counted_memory: a cgroup counts the sandbox's memory.

    Raises:
        ConfigError: pyseccomp or the library under it is missing.
    """
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise ConfigError(
            f"sandboxes need seccomp ({error}): pip install 'agentfly-rl[sandbox]', and the system's libseccomp2"
        ) from None
    # A call that isn't known answers as on an older kernel, for which programs are prepared.
    rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ERRNO(_ENOSYS))
    for name in syscalls.ALLOWED + (syscalls.ALLOWED_IN_A_CGROUP if counted_memory else []):
        _add(rules, pyseccomp.ALLOW, name)
    for name in syscalls.FORBIDDEN:
        _add(rules, pyseccomp.ERRNO(_EPERM), name)
    # clone3 has its flags in memory, where a filter can't look: without it, programs fall back to clone.
    rules.add_rule(pyseccomp.ALLOW, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, syscalls.NAMESPACES, 0))
    for family in (syscalls.AF_UNIX, syscalls.AF_INET, syscalls.AF_INET6):
        rules.add_rule(pyseccomp.ALLOW, "socket", _equals(pyseccomp, 0, family))
    netlink = _equals(pyseccomp, 0, syscalls.AF_NETLINK), _equals(pyseccomp, 2, syscalls.NETLINK_ROUTE)
    rules.add_rule(pyseccomp.ALLOW, "socket", *netlink)
    return _compiled(rules)


def _equals(pyseccomp: Any, argument: int, value: int) -> Any:
    return pyseccomp.Arg(argument, pyseccomp.MASKED_EQ, _INT, value)


def _add(rules: Any, action: Any, name: str) -> None:
    try:
        rules.add_rule(action, name)
    except (OSError, ValueError):
        pass  # not a call of this architecture, or not known to this library


def _compiled(rules: Any) -> bytes:
    descriptor = os.memfd_create("seccomp")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            rules.export_bpf(file)
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
