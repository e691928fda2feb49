"""The command line of bubblewrap. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WORKSPACE = "/workspace"
AGENT = "/run/agentfly/inside.py"


@dataclass(frozen=True)
class Interpreter:
    """A Python to run inside.

    Attributes:
        executable: its path, the same inside and outside.
        folders: of the host that it needs, read-only, the same inside and outside.
    """

    executable: str
    folders: tuple[str, ...]


def bubblewrap_command(
    *,
    bwrap: str,
    interpreter: Interpreter,
    disk: int,
    network: bool,
    env: Mapping[str, str],
    mounts: Mapping[str, str],
    program_fd: int,
    seccomp_fd: int,
    info_fd: int,
    arguments: tuple[str, ...],
) -> list[str]:
    """Arguments that start an isolated interpreter.

    Namespaces alone don't hold a process that has capabilities: a read-only bind can be mounted writable again.
    So all capabilities are dropped and no further user namespace can be made, whoever starts it.

    Args:
        bwrap: path of the binary.
        disk: bytes of each writable file system.
        mounts: path inside -> path of the host.
        program_fd: the program that the interpreter runs, handed in as data.
        seccomp_fd: a compiled filter.
        info_fd: where bubblewrap tells the id of the first process inside.
        arguments: of the program.
    """
    command = [bwrap, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    if not network:
        command.append("--unshare-net")
    command += ["--disable-userns", "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    command += ["--die-with-parent", "--new-session", "--clearenv", "--seccomp", str(seccomp_fd)]
    command += ["--info-fd", str(info_fd)]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "lib32", "bin", "sbin"):
        command += ["--symlink", f"usr/{name}", f"/{name}"]
    for path in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/localtime"):
        command += ["--ro-bind-try", path, path]
    for folder in interpreter.folders:
        command += ["--ro-bind", folder, folder]
    for inside, outside in mounts.items():
        command += ["--ro-bind", outside, inside]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/tmp", WORKSPACE):
        command += ["--size", str(disk), "--tmpfs", folder]
    command += ["--perms", "0555", "--ro-bind-data", str(program_fd), AGENT, "--remount-ro", "/"]
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORKSPACE, "LANG": "C.UTF-8", "TMPDIR": "/tmp", **env}
    for name, value in variables.items():
        command += ["--setenv", name, value]
    return [*command, "--chdir", WORKSPACE, "--", interpreter.executable, "-I", "-S", AGENT, *arguments]
