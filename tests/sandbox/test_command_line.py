"""Bubblewrap's command line: what must stand there, and in which order."""

from __future__ import annotations

from agentfly.resources.sandbox.bubblewrap.command import Bind, bubblewrap_command, variables


def line(network: bool = False) -> list[str]:
    return bubblewrap_command(
        bwrap="/bin/bwrap",
        program=["/usr/bin/python3", "-c", "pass"],
        binds=[Bind("/opt/python", "/opt/python"), Bind("/srv/data", "/workspace/data")],
        env={"A": "B"},
        disk=1 << 20,
        network=network,
        seccomp_fd=7,
        info_fd=8,
        etc_fds={"/etc/passwd": 9},
    )


def test_nothing_is_left_to_escape_by() -> None:
    text = " ".join(line())
    for needed in (
        "--unshare-user --unshare-ipc --unshare-pid --unshare-uts",
        "--unshare-net",
        "--disable-userns",
        "--cap-drop ALL",
        "--new-session",
        "--die-with-parent",
        "--as-pid-1",
        "--clearenv",
        "--seccomp 7",
        "--uid 1000 --gid 1000",
    ):
        assert needed in text
    assert "--unshare-net" not in line(network=True)
    assert "/etc/resolv.conf" in line(network=True)
    assert "/etc/resolv.conf" not in line()


def test_only_file_systems_in_memory_are_writable_and_have_a_size() -> None:
    command = line()
    assert not {"--bind", "--dev-bind", "--bind-try", "--dev-bind-try", "--bind-data"} & set(command)
    writable = [at for at, word in enumerate(command) if word == "--tmpfs"]
    assert [command[at + 1] for at in writable] == ["/dev/shm", "/tmp", "/workspace"]
    assert all(command[at - 2] == "--size" for at in writable)
    closed = [command[at + 1] for at, word in enumerate(command) if word == "--remount-ro"]
    assert closed == ["/proc", "/dev", "/"]


def test_the_order_is_that_of_the_mounts() -> None:
    command = line()
    last_mount = command.index("/workspace/data")
    assert command.index("--tmpfs") < last_mount < len(command) - 1 - command[::-1].index("--remount-ro")
    assert command[-5:] == ["/workspace", "--", "/usr/bin/python3", "-c", "pass"]


def test_variables_of_the_spec_win() -> None:
    env = variables("/opt/python/bin", {"HOME": "/elsewhere", "X": "1"}, ["/packages/0"], 2.0)
    assert env["PATH"] == "/opt/python/bin:/usr/local/bin:/usr/bin:/bin"
    assert (env["HOME"], env["X"], env["PYTHONPATH"], env["OMP_NUM_THREADS"]) == ("/elsewhere", "1", "/packages/0", "2")
    assert variables("/usr/bin", {}, [], 0.1)["PATH"] == "/usr/bin:/usr/local/bin:/bin"
