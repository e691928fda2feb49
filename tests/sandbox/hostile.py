"""Attacks on a sandbox; run by test_hostile.py in a private mount namespace, so that a failure can't touch the machine.

Arguments: a file that nobody inside may see, and `counted` or `uncounted`: whether cgroups may be used.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentfly.resources.sandbox import Sandbox, SandboxSpec
from agentfly.resources.sandbox.bubblewrap import limiting, provider

SPEC = SandboxSpec(
    name="hostile",
    memory="128MiB",
    disk="8MiB",
    max_processes=32,
    max_files=2000,
    max_output=4096,
    timeout=20,
)

# Each is run in the sandbox and must fail there: its exit code is not 0.
FORBIDDEN = {
    "remount a read-only bind": "mount -o remount,bind,rw /usr",
    "mount anything": "mount -t tmpfs none /tmp",
    "unmount": "umount -l /usr",
    "a new user namespace": "unshare --user true",
    "a new mount namespace": "unshare --mount true",
    "enter another namespace": "nsenter --mount=/proc/self/ns/mnt true",
    "write to the system": "touch /usr/bin/planted",
    "write to the root": "mkdir /planted",
    "write to /dev": "touch /dev/planted",
    "write to /etc": "echo x >> /etc/passwd",
    "write over /proc": "echo 1 > /proc/sys/kernel/panic || echo 0 > /proc/self/oom_score_adj",
    "write the first process's memory": "exec 3<> /proc/1/mem",
    "make a device": "mknod disk b 8 0 || mknod null c 1 3",
    "a host's file": "cat {secret}",
    "the host's passwords": "cat /etc/shadow",
    "the host's homes": "ls /root || ls /home/*",
    "the host's processes": "test -e /proc/{pid}/environ",
    "the environment of the first process outside": "cat /proc/1/environ | tr '\\0' '\\n' | grep AGENTFLY_SECRET",
    "a signal to the host": "kill -0 {pid}",
    "end the first process": "kill -9 1; kill -STOP 1; kill -INT 1; test $(cut -d ' ' -f 3 /proc/1/stat) = T",
    "the host's name": "test $(hostname) = {hostname}",
    "another host's name": "hostname stolen",
    "the clock": "date -s 2001-01-01",
    "become root": "python3 -c 'import os; os.setuid(0)'",
    "a program that belongs to root": (
        "cp /bin/sh mine; chmod 4755 mine; for p in ./mine $(find /usr -perm -4000 2> /dev/null | head); do "
        'test -n "$(grep NoNewPrivs:.1 /proc/self/status)" || exit 0; done; false'
    ),
    "capabilities": "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000",
    "the host's environment": 'test -n "$AGENTFLY_SECRET"',
    "a symlink to the host's files": "ln -s {secret} link; cat link",
    "climb out of the root": "cat /workspace/../../../../..{secret}",
    "more processes than allowed": (
        "for i in $(seq 100); do sleep 30 & done; test $(ls -d /proc/[0-9]* | wc -l) -gt 40"
    ),
    "more memory than allowed": "python3 -c 'bytearray(1 << 30)'",
    "fill the disk": "head -c 64000000 /dev/zero > big",
    "fill shared memory": "head -c 100000000 /dev/zero > /dev/shm/big",
    "a priority": "nice -n -5 true 2>&1 | grep -v denied; chrt -f 1 true",
    "descriptors of the host": "for fd in /proc/self/fd/*; do readlink $fd; done | grep -E 'memfd|bwrap|agentfly'",
}

# As Python, each with `forbidden` around what must raise OSError.
FORBIDDEN_CALLS = {
    "a TCP connection to the host": "socket.create_connection(('127.0.0.1', {port}), 2)",
    "a packet to the network": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    "a raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "a packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "the machine below this one": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "the kernel's cryptography": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "bluetooth": "socket.socket(31, socket.SOCK_RAW, 1)",
    "a family under another number": "call(41, 1 << 32 | 40, 1, 0)",
    "the kernel's audit": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)",
    "an abstract unix socket of the host": "socket.socket(socket.AF_UNIX).connect('\\0{abstract}')",
    "trace": "call(101, 16, os.getppid(), 0, 0)",
    "read another process's memory": "call(310, os.getppid(), 0, 0, 0, 0, 0)",
    "another process's descriptor": "call(438, os.pidfd_open(os.getppid()), 0, 0)",
    "a ring": "call(425, 8, ctypes.create_string_buffer(256))",
    "a program for the kernel": "call(321, 0, ctypes.create_string_buffer(256), 128)",
    "keys of others": "call(250, 0, 0)",
    "faults in user space": "call(323, 0)",
    "memory of nobody": "call(29, 0, 1 << 20, 0o1600)",
    "a namespace by clone": "call(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "a namespace by clone3": "call(435, ctypes.create_string_buffer(88), 88)",
    "a mount the new way": "call(430, ctypes.create_string_buffer(b'tmpfs'), 0)",
}

CALLS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    if libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args)) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
try:
    {call}
except OSError as error:
    print("forbidden", error)
"""

FORK_BOMB = "import os\nfor _ in range(10000):\n    try: os.fork()\n    except OSError: pass"
FILL_MEMORY = "import time\nkept = []\nfor _ in range(100): kept.append(b'x' * (1 << 24))\ntime.sleep(60)"
MANY_SHARED = "n = 0\nwhile True:\n    open(f'/dev/shm/{n}', 'w').close(); n += 1"
TIMERS = """
import ctypes
rt, timer, n = ctypes.CDLL("librt.so.1"), ctypes.c_void_p(), 0
while n < MOST and rt.timer_create(0, None, ctypes.byref(timer)) == 0: n += 1
n
"""
MANY_FILLERS = "for i in 1 2 3 4; do python3 -c \"import time; x = b'x' * (90 << 20); time.sleep(2)\" & done; wait"


async def forkbomb(box: Sandbox) -> bool:
    await box.write("bomb.py", FORK_BOMB)
    await box.run("python3 bomb.py & :(){ :|:& };: & sleep 0.5", timeout=5)
    result = await box.run("echo works", timeout=10)
    again = await box.run("echo works", timeout=10)
    return result.stdout == "works\n" or again.stdout == "works\n"


async def forkbomb_in_python(box: Sandbox) -> bool:
    await box.run_python(FORK_BOMB + "\nwhile True: pass", timeout=1)
    return (await box.run_python("1")).value == "1"


async def memory_of_one(box: Sandbox) -> bool:
    result = await box.run_python(FILL_MEMORY)
    return result.status == "out_of_memory" and (await box.run_python("1")).value == "1"


async def memory_of_many(box: Sandbox) -> bool:
    result = await box.run(MANY_FILLERS)
    return result.status == "out_of_memory" and (await box.run_python("1")).value == "1"


async def memory_shared(box: Sandbox) -> bool:
    code = "import mmap\nm = mmap.mmap(-1, 1 << 30)\nfor at in range(0, 1 << 30, 4096): m[at] = 1"
    result = await box.run_python(code)
    return result.status == "out_of_memory" and (await box.run_python("1")).value == "1"


async def many_files(box: Sandbox) -> bool:
    result = await box.run_python("n = 0\nwhile True:\n    open(f'/tmp/{n}', 'w').close(); n += 1", timeout=15)
    counted = await box.run("ls /tmp | wc -l; rm -r /tmp/*; echo works")
    return result.status == "killed" and "too many files" in str(result) and counted.stdout.endswith("works\n")


async def many_files_in_shared_memory(box: Sandbox) -> bool:
    result = await box.run_python(MANY_SHARED, timeout=15)
    return result.status == "killed" and "too many files" in str(result)


async def timers_of_all(box: Sandbox) -> bool:
    """What the kernel counts for the user outside, who is the same for all sandboxes."""
    other = Sandbox(**SPEC.args)
    await other.start()
    await box.run_python(TIMERS.replace("MOST", "1000000"))
    result = await other.run_python(TIMERS.replace("MOST", "5"))
    await other.stop()
    return result.value == "5"


async def a_gigabyte_of_output(box: Sandbox) -> bool:
    result = await box.run("head -c 1000000000 /dev/zero")
    return result.status == "output_truncated" and len(result.stdout) < 5000


async def endless_output(box: Sandbox) -> bool:
    result = await box.run_python("while True: print('y' * 100_000)")
    return result.status in ("output_truncated", "timeout") and len(result.stdout) < 5000


async def not_utf8(box: Sandbox) -> bool:
    result = await box.run("head -c 100000 /dev/urandom; head -c 1000 /dev/urandom >&2")
    return result.exit_code == 0 and len(result.stdout) > 1000


async def kill_all(box: Sandbox) -> bool:
    result = await box.run_python("import os; os.system('sleep 60 &'); os.kill(-1, 9); os.kill(0, 9)")
    return result.status == "killed" and result.state_lost and (await box.run("echo works")).stdout == "works\n"


async def close_everything(box: Sandbox) -> bool:
    await box.run_python("import os\nfor n in range(1024):\n    try: os.close(n)\n    except OSError: pass")
    return (await box.run_python("print('works')")).stdout == "works\n"


async def lie_to_the_controller(box: Sandbox) -> bool:
    lies = "import os\nfor n in range(3, 300):\n    try: os.write(n, b'\\x7f' * 1000)\n    except OSError: pass"
    await box.run_python(lies)
    return (await box.run_python("1")).value == "1"


async def daemons(box: Sandbox) -> bool:
    await box.run("setsid sh -c 'sleep 600 &' > /dev/null 2>&1; (setsid setsid sleep 600 &)")
    await box.reset()
    return "sleep" not in (await box.run("cat /proc/[0-9]*/comm")).stdout


async def huge_names(box: Sandbox) -> bool:
    result = await box.run("touch $(printf 'x%.0s' $(seq 300)); touch $(printf 'x%.0s' $(seq 255)); ls | wc -c")
    return result.stdout == "256\n" and len((await box.list())[0].name) == 255


async def paths(box: Sandbox) -> bool:
    """Links that are changed while they are followed never lead further than the sandbox's own view."""
    code = "ln -s /etc/passwd a; while :; do ln -sfn /workspace b; ln -sfn /etc b; done"
    turning = asyncio.create_task(box.run(code, timeout=2))
    texts = []
    for _ in range(200):
        try:
            texts.append(await box.read("b/passwd"))
        except OSError:
            continue
    await turning
    return all(text == "" or text.startswith("root:x:0:0::/") for text in texts)


async def other_sandboxes(box: Sandbox) -> bool:
    async def one(other: Sandbox) -> bool:
        await other.start()
        await other.write("/tmp/secret", "top secret")
        found = await box.run(
            "grep -r 'top secret' /tmp /dev/shm /workspace /run 2> /dev/null; ls -d /proc/[0-9]* | wc -l"
        )
        await other.stop()
        return "top secret" not in found.stdout and int(found.stdout.split()[-1]) < 10

    return await one(Sandbox(**SPEC.args))


DISTURBING: list[Callable[[Sandbox], Awaitable[bool]]] = [
    forkbomb,
    forkbomb_in_python,
    memory_of_one,
    memory_of_many,
    memory_shared,
    many_files,
    many_files_in_shared_memory,
    timers_of_all,
    a_gigabyte_of_output,
    endless_output,
    not_utf8,
    kill_all,
    close_everything,
    lie_to_the_controller,
    daemons,
    huge_names,
    paths,
    other_sandboxes,
]


async def forbidden(box: Sandbox, facts: dict[str, object], report: dict[str, str]) -> None:
    for name, command in FORBIDDEN.items():
        for fact, value in facts.items():
            command = command.replace("{" + fact + "}", str(value))
        result = await box.run(command)
        held = result.exit_code != 0 and "top secret" not in result.stdout + result.stderr
        report[name] = "held" if held else f"ESCAPED: {result}"
        if not held or result.files_lost:
            await box.reset()
    for name, call in FORBIDDEN_CALLS.items():
        for fact, value in facts.items():
            call = call.replace("{" + fact + "}", str(value))
        result = await box.run('python3 -c "$CODE"', env={"CODE": CALLS.replace("{call}", call)})
        report[name] = "held" if result.stdout.startswith("forbidden") else f"ESCAPED: {result}"
    await box.reset()


async def disturbing(box: Sandbox, report: dict[str, str]) -> None:
    for attack in DISTURBING:
        try:
            outcome = "" if await attack(box) else "NOT HELD"
        except Exception as error:
            outcome = f"RAISED {error!r}"
        await box.reset()
        clean = await box.list() == [] and (await box.run_python("1")).value == "1"
        report[attack.__name__] = outcome or ("held" if clean else "NOT CLEAN")


def untouched(secret: Path) -> bool:
    return secret.read_text() == "top secret"


async def main() -> None:
    secret = Path(sys.argv[1])
    if sys.argv[2] == "uncounted":
        nothing = limiting.Cgroups((), "not for this test")
        provider.own_cgroups = lambda: nothing  # type: ignore[assignment]
    report: dict[str, str] = {}
    abstract = f"agentfly-hostile-{os.getpid()}"
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    unix = await asyncio.start_unix_server(lambda r, w: w.close(), "\0" + abstract)
    facts = {
        "secret": str(secret),
        "pid": os.getpid(),
        "hostname": os.uname().nodename,
        "port": server.sockets[0].getsockname()[1],
        "abstract": abstract,
    }
    box = Sandbox(**SPEC.args)
    await box.start()
    await forbidden(box, facts, report)
    await disturbing(box, report)
    await box.stop()
    report["the secret is as it was"] = "held" if untouched(secret) else "CHANGED"
    server.close()
    unix.close()
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main())
