"""The command line of bubblewrap. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WORKSPACE = "/workspace"
TMP = "/tmp"
PACKAGES = "/packages"

# What programs expect there, and that is no secret of the host.
_ETC = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/localtime", "/etc/mime.types")
_NETWORK_ETC = ("/etc/resolv.conf", "/etc/nsswitch.conf")
_SHARED_MEMORY = 1 << 26

ETC_FILES = {
    "/etc/passwd": b"root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/workspace:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "/etc/group": b"root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
}


@dataclass(frozen=True)
class Bind:
    """A file or folder of the host that can be read inside.

    Attributes:
        outside: its path.
        inside: where it appears.
        optional: it may be missing.
    """

    outside: str
    inside: str
    optional: bool = False

    def arguments(self) -> list[str]:
        """For bubblewrap."""
        return ["--ro-bind-try" if self.optional else "--ro-bind", self.outside, self.inside]


def bubblewrap_command(
    *,
    bwrap: str,
    program: Sequence[str],
    binds: Sequence[Bind],
    env: Mapping[str, str],
    disk: int,
    network: bool,
    seccomp_fd: int,
    info_fd: int,
    etc_fds: Mapping[str, int],
) -> list[str]:
    """Arguments that start an isolated program.

    Namespaces alone don't hold a process that has capabilities: a read-only bind can be mounted writable again.
    So all capabilities are dropped and no further user namespace can be made, whoever starts it. What is writable
    is a file system in memory, of limited size; everything else is read-only, `/proc` included, through which one
    process could write another one's memory.

    Args:
        bwrap: path of the binary.
        program: what runs inside as process 1.
        binds: what it sees of the host beside `/usr`.
        env: all of its variables.
        disk: bytes of the workspace, and of the folder for temporary files.
        network: it shares the host's network.
        seccomp_fd: a compiled filter.
        info_fd: where bubblewrap tells the id of the first process inside.
        etc_fds: contents of small files, by path.
    """
    command = [bwrap, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    if not network:
        command.append("--unshare-net")
    command += ["--disable-userns", "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    command += ["--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    command += ["--seccomp", str(seccomp_fd), "--info-fd", str(info_fd)]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "lib32", "bin", "sbin"):
        command += ["--symlink", f"usr/{name}", f"/{name}"]
    for path in [*_ETC, *(_NETWORK_ETC if network else ())]:
        command += Bind(path, path, optional=True).arguments()
    for path, descriptor in etc_fds.items():
        command += ["--perms", "0444", "--file", str(descriptor), path]
    command += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    command += [*_memory("/dev/shm", _SHARED_MEMORY), "--remount-ro", "/dev"]
    command += [*_memory(TMP, disk), *_memory(WORKSPACE, disk)]
    for bind in binds:
        command += bind.arguments()
    command += ["--remount-ro", "/"]
    for name, value in env.items():
        command += ["--setenv", name, value]
    return [*command, "--chdir", WORKSPACE, "--", *program]


def variables(python_folder: str, env: Mapping[str, str], packages: Sequence[str], cpus: float) -> dict[str, str]:
    """The environment inside.

    Args:
        python_folder: of the interpreter, so that a shell finds the same one.
        env: the spec's own, which win.
        packages: folders that `python` in a shell imports from.
        cpus: how many there are to use, for libraries that start a thread for each that they see.
    """
    threads = str(max(1, round(cpus)))
    path = dict.fromkeys([python_folder, "/usr/local/bin", "/usr/bin", "/bin"])
    own = {
        "PATH": ":".join(path),
        "HOME": WORKSPACE,
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TMPDIR": TMP,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }
    if packages:
        own["PYTHONPATH"] = ":".join(packages)
    return {**own, **env}


def _memory(path: str, size: int) -> list[str]:
    return ["--perms", "1777" if path != WORKSPACE else "0755", "--size", str(size), "--tmpfs", path]
