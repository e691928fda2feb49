"""A small server that speaks what we use of Docker's API and notes what it was asked for.

Containers are folders of this machine that commands see as /workspace and /tmp; they isolate nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import signal
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import psutil

from agentfly.resources.sandbox.bubblewrap.machine import bwrap_path


@dataclass
class Container:
    """A container of the engine."""

    asked: dict[str, Any]
    id: str = field(default_factory=lambda: uuid4().hex * 2)
    status: str = "created"
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="docker-double-")))

    def public(self) -> dict[str, Any]:
        state = {"Status": self.status, "Running": self.status == "running"}
        config = {"Image": self.asked["Image"], "Labels": self.asked.get("Labels") or {}}
        return {"Id": self.id, "Name": "/x", "Image": "sha256:0", "State": state, "Config": config}

    def command(self, words: list[str]) -> list[str]:
        arguments = [bwrap_path(), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/home"]
        arguments = [*arguments, "--bind", str(self.folder / "tmp"), "/tmp", "--setenv", "DOCKER_DOUBLE", self.id]
        return [*arguments, "--chdir", "/tmp", "--", *words]

    def end(self) -> None:
        while found := self.processes():
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("DOCKER_DOUBLE") == self.id:
                    found.append(process)
        return found


@dataclass
class Answer:
    """Of the engine; that of an execution is a stream after an upgrade."""

    status: int
    body: Any = None
    execution: dict[str, Any] | None = None


class DockerEngine:
    """The engine.

    Attributes:
        url: for the SDK.
        containers: that are there.
        images: that are there; others can be pulled.
        requests: method and path of each that came.
        glue: of so many commands the output comes together with the answer's header, where the SDK loses it.
        faults: status and message for the next requests whose path has this in it.
    """

    def __init__(self) -> None:
        self.url = ""
        self.containers: dict[str, Container] = {}
        self.images = {"image:1"}
        self.requests: list[tuple[str, str]] = []
        self.faults: dict[str, tuple[int, str]] = {}
        self.glue = 0
        self.changed = asyncio.Event()
        self._execs: dict[str, dict[str, Any]] = {}

    async def until(self, part: str, times: int) -> None:
        """Wait until requests of this path have come so often."""
        async with asyncio.timeout(30):
            while self.count(part) < times:
                self.changed.clear()
                await self.changed.wait()

    def count(self, part: str) -> int:
        return sum(part in path for _, path in self.requests)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split(" ", 2)
                length = re.search(r"(?i)content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                answer = await self.answer(method, urlsplit(target), body)
                if answer.execution is not None:
                    await self.start(answer.execution, writer)
                    break
                text = b"" if answer.body is None else json.dumps(answer.body).encode()
                kind = f"HTTP/1.1 {answer.status} X\r\nContent-Type: application/json\r\n"
                writer.write(f"{kind}Content-Length: {len(text)}\r\n\r\n".encode() + text)
                await writer.drain()
        writer.close()

    async def answer(self, method: str, target: Any, body: bytes) -> Answer:
        path = re.sub(r"^/v[\d.]+", "", target.path)
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        self.requests.append((method, path))
        self.changed.set()
        for part, (status, message) in list(self.faults.items()):
            if part in path:
                del self.faults[part]
                return Answer(status, {"message": message})
        match path.strip("/").split("/"):
            case ["version"]:
                return Answer(200, {"ApiVersion": "1.43", "Version": "double"})
            case ["containers", "create"]:
                return self.create(json.loads(body))
            case ["containers", "json"]:
                return self.list(json.loads(query.get("filters", "{}")))
            case ["images", "create"]:
                self.images.add(f"{query['fromImage']}:{query['tag']}")
                return Answer(200, {"status": "Pull complete"})
            case ["images", *_]:
                return Answer(200, {"Id": "sha256:0", "RepoTags": []})
            case ["exec", exec_id, "json"]:
                return Answer(200, {"ExitCode": self._execs[exec_id]["code"], "Running": False})
            case ["exec", exec_id, "start"]:
                return Answer(101, execution=self._execs[exec_id])
            case ["containers", name, *rest] if name in self.containers:
                return await self.of_container(self.containers[name], method, rest, query, body)
        return Answer(404, {"message": f"No such container: {path}"})

    def create(self, asked: dict[str, Any]) -> Answer:
        if asked["Image"] not in self.images:
            return Answer(404, {"message": f"No such image: {asked['Image']}"})
        container = Container(asked)
        (container.folder / "tmp").mkdir()
        os.chmod(container.folder, 0o755)
        self.containers[container.id] = container
        return Answer(201, {"Id": container.id, "Warnings": []})

    def list(self, filters: dict[str, Any]) -> Answer:
        wanted = dict(label.split("=", 1) for label in filters.get("label", []))
        found = [box for box in self.containers.values() if wanted.items() <= (box.asked.get("Labels") or {}).items()]
        return Answer(200, [{"Id": box.id} for box in found])

    async def of_container(
        self, container: Container, method: str, rest: list[str], query: dict[str, str], body: bytes
    ) -> Answer:
        match method, rest:
            case "GET", ["json"]:
                return Answer(200, container.public())
            case "POST", ["start"]:
                container.status = "running"
                return Answer(204)
            case "PUT", ["archive"]:
                assert query["path"].startswith("/tmp/")
                with tarfile.open(fileobj=io.BytesIO(body)) as archive:
                    archive.extractall(container.folder / query["path"].strip("/"), filter="data")
                return Answer(200)
            case "POST", ["exec"] if container.status == "running":
                exec_id = uuid4().hex
                self._execs[exec_id] = {"container": container, "words": json.loads(body)["Cmd"], "code": None}
                return Answer(201, {"Id": exec_id})
            case "DELETE", []:
                await self.remove(container)
                return Answer(204)
        return Answer(409, {"message": f"Container {container.id} is not running"})

    async def start(self, execution: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        container: Container = execution["container"]
        upgrade = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        glued, self.glue = self.glue, 0 if not self.glue else self.glue - 1
        if not glued:
            writer.write(upgrade)
            await writer.drain()
        env = dict(pair.split("=", 1) for pair in container.asked.get("Env") or [])
        process = await asyncio.create_subprocess_exec(
            *container.command(execution["words"]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **env},
        )
        out, err = await process.communicate()
        execution["code"] = process.returncode
        frames = (bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for kind, data in ((1, out), (2, err)))
        writer.write((upgrade if glued else b"") + b"".join(frames))
        await writer.drain()

    async def remove(self, container: Container) -> None:
        self.containers.pop(container.id, None)
        await asyncio.to_thread(container.end)
        self.changed.set()


@asynccontextmanager
async def docker_engine() -> AsyncIterator[DockerEngine]:
    """A running engine; what is left in it is ended."""
    engine = DockerEngine()
    listening = await asyncio.start_server(engine.serve, "127.0.0.1", 0, limit=1 << 20)
    engine.url = f"tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield engine
    finally:
        for container in list(engine.containers.values()):
            await engine.remove(container)
        listening.close()
