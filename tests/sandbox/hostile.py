"""Attacks on a sandbox; test_hostile.py runs them in a private mount namespace, to keep failures off the machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from agentfly.resources.sandbox import Sandbox, SandboxSpec

SPEC = SandboxSpec(name="hostile", memory="256MiB", disk="8MiB", max_processes=32, max_output=4096, timeout=20)

# Each line is run in the sandbox and must fail there: its exit code is not 0.
FORBIDDEN = {
    "remount a read-only bind": "mount -o remount,bind,rw /usr",
    "mount anything": "mount -t tmpfs none /tmp",
    "a new user namespace": "unshare --user true",
    "a new mount namespace": "unshare --mount true",
    "write to the system": "touch /usr/bin/planted",
    "write to the root": "mkdir /planted",
    "a host's file": "cat {secret}",
    "the host's passwords": "cat /etc/shadow",
    "the host's processes": "test -e /proc/{pid}/environ",
    "a signal to the host": "kill -0 {pid}",
    "the host's name": "test $(hostname) = {hostname}",
    "a TCP connection to the host": "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 2)'",
    "a raw socket": "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
    "a packet socket": "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
    "an abstract unix socket of the host": (
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"\\0{abstract}\")'"
    ),
    "the clock": "date -s 2001-01-01",
    "trace a process": (
        "python3 -c 'import ctypes, os; os._exit(0 if ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0) "
        "== 0 else 1)'"
    ),
    "become root": "python3 -c 'import os; os.setuid(0)'",
    "the host's environment": 'test -n "$AGENTFLY_SECRET"',
    "fill the disk": "head -c 64000000 /dev/zero > big",
    "a symlink to the host's files": "ln -s {secret} link; cat link",
    "climb out of the root": "cat /workspace/../../../../..{secret}",
    "more processes than allowed": "for i in $(seq 100); do sleep 30 & done; test $(ls -d /proc/[0-9]* | wc -l) -gt 60",
    "more memory than allowed": "python3 -c 'bytearray(1 << 30)'",
}

# These may do what they like inside; the sandbox must answer, and the next lease must be clean.
DISTURBING = {
    "fork bomb": "python3 -c 'import os\nfor _ in range(9999):\n try: os.fork()\n except OSError: pass' & sleep 0.3",
    "endless output": "timeout 0.5 yes",
    "many files": "python3 -c 'import pathlib\nfor n in range(10000): pathlib.Path(str(n)).touch()'",
    "a daemon": "setsid sh -c 'sleep 600 &' > /dev/null 2>&1",
    "a huge name": "touch $(printf 'x%.0s' $(seq 300))",
    "output that is not UTF-8": "head -c 100000 /dev/urandom",
}


async def main() -> None:
    secret = Path(sys.argv[1])
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
    for name, command in FORBIDDEN.items():
        for fact, value in facts.items():
            command = command.replace("{" + fact + "}", str(value))
        result = await box.run(command)
        text = result.stdout + result.stderr
        report[name] = "held" if result.exit_code != 0 and "top secret" not in text else f"ESCAPED: {result}"
        await box.reset()
    for name, command in DISTURBING.items():
        try:
            await box.run(command, timeout=5)
            answered = True
        except Exception as error:  # a sandbox that dies of it is fine, one that lies about it isn't
            answered = type(error).__name__ == "ResourceDied"
        await box.reset()
        clean = await box.list() == [] and (await box.run_python("1")).value == "1"
        report[name] = "held" if answered and clean else "NOT CLEAN"
    await box.stop()
    report["the secret is as it was"] = "held" if secret.read_text() == "top secret" else "CHANGED"  # noqa: ASYNC240
    server.close()
    unix.close()
    sys.stdout.write(json.dumps(report))


asyncio.run(main())
