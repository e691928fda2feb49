"""The system calls that no sandbox may make."""

from __future__ import annotations

import os
from functools import cache

from agentfly.errors import ConfigError

_EPERM, _ENOSYS = 1, 38
_CLONE_NEWUSER = 0x10000000

# Kernel surface that ordinary programs don't need: mounting, namespaces, modules, tracing, keys, io_uring, bpf.
_DENIED = """
    acct add_key bpf chroot delete_module finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter
    io_uring_register io_uring_setup ioperm iopl kexec_file_load kexec_load keyctl lookup_dcookie mount
    mount_setattr move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open
    personality pidfd_getfd pivot_root process_madvise process_vm_readv process_vm_writev ptrace quotactl reboot
    request_key setns settimeofday clock_settime clock_adjtime adjtimex swapoff swapon syslog umount2 unshare
    userfaultfd vhangup
""".split()


@cache
def filter_program() -> bytes:
    """The compiled filter.

    Raises:
        ConfigError: pyseccomp or the library under it is missing.
    """
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise ConfigError(
            f"sandboxes need seccomp ({error}): pip install agentfly-rl[sandbox], and the system's libseccomp2"
        ) from None
    filter_ = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
    for name in _DENIED:
        try:
            filter_.add_rule(pyseccomp.ERRNO(_EPERM), name)
        except (OSError, ValueError):
            continue  # not a call of this architecture
    new_user = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLONE_NEWUSER, _CLONE_NEWUSER)
    filter_.add_rule(pyseccomp.ERRNO(_EPERM), "clone", new_user)
    # Its flags lie in memory, where a filter can't look: programs fall back to clone.
    filter_.add_rule(pyseccomp.ERRNO(_ENOSYS), "clone3")
    descriptor = os.memfd_create("seccomp")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            filter_.export_bpf(file)
        size = os.lseek(descriptor, 0, os.SEEK_END)
        return os.pread(descriptor, size, 0)
    finally:
        os.close(descriptor)
