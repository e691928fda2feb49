"""A real Ray head node on free ports, as `ray start --head` makes it, and jobs submitted to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from processes import left_after, marked


@dataclass(frozen=True)
class RayHead:
    """A running head node.

    Attributes:
        bin: folder of the `ray` command that started it.
        address: of its dashboard, which takes jobs.
        environment: of the processes that talk to it.
    """

    bin: Path
    address: str
    environment: dict[str, str]

    def submit(self, folder: Path, entrypoint: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Submit a folder and wait for the job's end; its logs are in the result's stdout."""
        return self.job("submit", "--working-dir", str(folder), *options, "--", "bash", "-c", entrypoint)

    def job(self, what: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`ray job ...`, to its end."""
        return subprocess.run(
            [self.bin / "ray", "job", what, "--address", self.address, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@contextmanager
def ray_head(bin: Path) -> Iterator[RayHead]:
    """Start a head node with the Python of a folder; at the end all that came of it is killed, by pid."""
    mark = f"agentfly-head-{uuid4().hex}"
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(bin), os.environ["PATH"]]),
        "RAY_AUTH_MODE": "disabled",
        "AGENTFLY_HEAD_MARK": mark,
    }
    # Ray's sockets are in this folder, and the path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as scratch:
        try:
            yield RayHead(bin, _start(bin, scratch, environment), environment)
        finally:
            for pid in marked(mark):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            assert not left_after(mark, 10)


def _start(bin: Path, scratch: str, environment: dict[str, str]) -> str:
    head, dashboard, agent, agent_rpc, client = map(str, _free_ports(5))
    options = {
        "--port": head,
        "--dashboard-port": dashboard,
        "--dashboard-agent-listen-port": agent,
        "--dashboard-agent-grpc-port": agent_rpc,
        "--ray-client-server-port": client,
        "--min-worker-port": "0",
        "--max-worker-port": "0",
        "--num-cpus": "2",
        "--temp-dir": scratch,
        "--include-dashboard": "true",
    }
    command = [str(bin / "ray"), "start", "--head", "--disable-usage-stats"]
    done = subprocess.run(
        [*command, *(f"{name}={value}" for name, value in options.items())],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return f"http://127.0.0.1:{dashboard}"


def _free_ports(count: int) -> list[int]:
    """Ports that are free now, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
