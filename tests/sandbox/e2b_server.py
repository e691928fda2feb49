"""A small server that speaks E2B's API: control plane, commands, files. Its wire format is written by hand.

Sandboxes are folders of this machine that commands see as /home/user and /tmp; they isolate nothing. What the service
does with time is real: sandboxes expire, paused ones stand still, what is gone answers as the service's proxy does.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import struct
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import uuid4

import psutil
from aiohttp import web

from agentfly.resources.sandbox.bubblewrap.machine import bwrap_path

KEY = "e2b_" + "0" * 40


class Box:
    """A sandbox of the service."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.id = f"i{uuid4().hex[:19]}"
        self.token = uuid4().hex
        self.request = body
        self.folder = Path(tempfile.mkdtemp(prefix="e2b-double-"))
        for name in ("home", "tmp"):
            (self.folder / name).mkdir()
        self.state = "running"
        self.started = time.time()
        self.ends = self.started + body.get("timeout", 15)
        self.processes: dict[int, asyncio.subprocess.Process] = {}

    def public(self) -> dict[str, Any]:
        ids = {"templateID": self.request["templateID"], "sandboxID": self.id, "clientID": "local", "alias": "base"}
        times = {
            "startedAt": iso(self.started),
            "endAt": iso(self.ends),
            "state": "running" if self.state == "running" else "paused",
        }
        sizes = {"cpuCount": 1, "memoryMB": 512, "diskSizeMB": 1024, "metadata": self.request.get("metadata") or {}}
        token = {"envdVersion": "0.6.7", "envdAccessToken": self.token, "domain": None}
        return {**ids, **times, **sizes, **token}

    def command(self, process: dict[str, Any]) -> list[str]:
        binds = {"home": "/home/user", "tmp": "/tmp"}
        arguments = [bwrap_path(), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/home"]
        for name, path in binds.items():
            arguments += ["--bind", str(self.folder / name), path]
        arguments += ["--setenv", "HOME", "/home/user", "--setenv", "E2B_DOUBLE", self.id, "--chdir"]
        return [*arguments, process.get("cwd") or "/home/user", "--", process["cmd"], *process.get("args", [])]

    def all_processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("E2B_DOUBLE") == self.id:
                    found.append(process)
        return found

    def signal(self, number: int) -> None:
        for process in self.all_processes():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def stop(self) -> None:
        """Have all of it stand still, what is just being started too."""
        while any(map(runs, self.all_processes())):
            self.signal(signal.SIGSTOP)

    def end(self) -> None:
        while self.all_processes():
            self.signal(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def host_path(self, path: str) -> Path:
        path = os.path.normpath(os.path.join("/home/user", path))
        for inside, name in (("/home/user", "home"), ("/tmp", "tmp")):
            if path == inside or path.startswith(inside + "/"):
                return self.folder / name / os.path.relpath(path, inside)
        raise web.HTTPForbidden


def runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


BOX = web.RequestKey("box", Box)


class E2bServer:
    """The service.

    Attributes:
        url: of everything.
        boxes: that are there.
        requests: method and path of each that came.
        faults: answers to give instead of the real one: how method and path begin, status, message.
        paused_while_busy: sandboxes that were paused while a command ran.
    """

    def __init__(self) -> None:
        self.url = ""
        self.boxes: dict[str, Box] = {}
        self.requests: list[tuple[str, str]] = []
        self.faults: deque[tuple[str, int, str]] = deque()
        self.changed = asyncio.Event()
        self.paused_while_busy = 0

    def options(self, **more: Any) -> dict[str, Any]:
        """Of the provider, for this service."""
        return {"api_url": self.url, "sandbox_url": self.url, "api_key": KEY, **more}

    def add(self, body: dict[str, Any]) -> Box:
        """Make a sandbox."""
        box = Box(body)
        self.boxes[box.id] = box
        return box

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something to happen here."""
        async with asyncio.timeout(30):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def count(self, method: str, part: str) -> int:
        return sum(1 for asked, path in self.requests if asked == method and part in path)

    async def expire(self) -> None:
        """End what nobody has renewed; time stands still for what is paused."""
        while True:
            await asyncio.sleep(0.05)
            for box in list(self.boxes.values()):
                if box.state == "running" and time.time() > box.ends:
                    await self.remove(box)

    async def remove(self, box: Box) -> None:
        self.boxes.pop(box.id, None)
        await asyncio.to_thread(box.end)
        self.changed.set()

    # The control plane

    async def create(self, request: web.Request) -> web.Response:
        box = self.add(await request.json())
        return web.json_response(box.public(), status=201)

    async def list(self, request: web.Request) -> web.Response:
        wanted = {unquote(key): unquote(value) for key, value in parse_qsl(request.query.get("metadata", ""))}
        boxes = [box.public() for box in self.boxes.values() if wanted.items() <= box.public()["metadata"].items()]
        return web.json_response(boxes)

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self._box(request).public())

    async def kill(self, request: web.Request) -> web.Response:
        await self.remove(self._box(request))
        return web.Response(status=204)

    async def timeout(self, request: web.Request) -> web.Response:
        self._box(request).ends = time.time() + (await request.json())["timeout"]
        return web.Response(status=204)

    async def pause(self, request: web.Request) -> web.Response:
        box = self._box(request)
        if box.state != "running":
            raise fault(409, "already paused")
        box.state = "pausing"
        self.paused_while_busy += any(process.returncode is None for process in box.processes.values())
        await asyncio.to_thread(box.stop)
        box.state = "paused"
        self.changed.set()
        return web.Response(status=204)

    async def connect(self, request: web.Request) -> web.Response:
        box = self._box(request)
        resumed = box.state == "paused"
        box.state, box.ends = "running", time.time() + (await request.json())["timeout"]
        if resumed:
            await asyncio.to_thread(box.signal, signal.SIGCONT)
        return web.json_response(box.public(), status=201 if resumed else 200)

    def _box(self, request: web.Request) -> Box:
        box = self.boxes.get(request.match_info["id"])
        if box is None:
            raise fault(404, "sandbox not found")
        return box

    # Inside a sandbox

    async def health(self, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def write(self, request: web.Request) -> web.Response:
        path = request.query["path"]
        if request.content_type == "application/octet-stream":
            data = await request.read()
        else:
            part: Any = await (await request.multipart()).next()
            data = await part.read()
        target = request[BOX].host_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return web.json_response([{"name": target.name, "path": path, "type": "file"}])

    async def start(self, request: web.Request) -> web.StreamResponse:
        box = request[BOX]
        body = await request.read()
        process = json.loads(body[5:])["process"]
        answer = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await answer.prepare(request)
        running = await asyncio.create_subprocess_exec(
            *box.command(process),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(box.request.get("envVars") or {}), **process.get("envs", {})},
            start_new_session=True,
        )
        box.processes[running.pid] = running
        await answer.write(frame({"event": {"start": {"pid": running.pid}}}))
        outputs = (pump(running.stdout, "stdout", answer), pump(running.stderr, "stderr", answer))
        await asyncio.gather(*outputs, running.wait())
        code = running.returncode or 0
        end = {"exitCode": max(code, -1), "exited": code >= 0, "status": f"exit status {code}"}
        with contextlib.suppress(ConnectionError):
            await answer.write(frame({"event": {"end": end}}) + frame({}, last=True))
            await answer.write_eof()
        return answer

    async def send_signal(self, request: web.Request) -> web.Response:
        asked = await request.json()
        running = request[BOX].processes.get(asked["process"]["pid"])
        if running is None or running.returncode is not None:
            return web.json_response({"code": "not_found", "message": "process not found"}, status=404)
        os.killpg(running.pid, signal.SIGKILL)
        return web.json_response({})

    @web.middleware
    async def guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        self.changed.set()
        if self.faults and f"{request.method} {request.path}".startswith(self.faults[0][0]):
            _, status, message = self.faults.popleft()
            raise fault(status, message)
        if "sandboxes" in request.path:
            if request.headers.get("X-API-Key") != KEY:
                raise fault(401, "wrong api key")
            return await handler(request)
        box = self.boxes.get(request.headers.get("E2b-Sandbox-Id", ""))
        if box is None or box.state != "running":
            raise fault(502, "The sandbox was not found")
        if request.headers.get("X-Access-Token") != box.token:
            raise fault(401, "wrong access token")
        request[BOX] = box
        return await handler(request)


@asynccontextmanager
async def e2b_server() -> AsyncIterator[E2bServer]:
    """A running service; what is left in it is ended."""
    server = E2bServer()
    application = web.Application(middlewares=[server.guard], client_max_size=1 << 30)
    router = application.router
    router.add_post("/v2/sandboxes", server.create)
    router.add_post("/sandboxes", server.create)
    router.add_get("/v2/sandboxes", server.list)
    router.add_get("/sandboxes/{id}", server.get)
    router.add_delete("/sandboxes/{id}", server.kill)
    router.add_post("/sandboxes/{id}/timeout", server.timeout)
    router.add_post("/sandboxes/{id}/pause", server.pause)
    router.add_post("/v2/sandboxes/{id}/connect", server.connect)
    router.add_get("/health", server.health)
    router.add_post("/files", server.write)
    router.add_post("/process.Process/Start", server.start)
    router.add_post("/process.Process/SendSignal", server.send_signal)
    runner = web.AppRunner(application, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    expiring = asyncio.create_task(server.expire())
    try:
        yield server
    finally:
        expiring.cancel()
        for box in list(server.boxes.values()):
            await server.remove(box)
        await runner.cleanup()


async def pump(stream: asyncio.StreamReader | None, name: str, answer: web.StreamResponse) -> None:
    assert stream is not None
    while data := await stream.read(1 << 16):
        with contextlib.suppress(ConnectionError):
            await answer.write(frame({"event": {"data": {name: base64.b64encode(data).decode()}}}))


def frame(message: dict[str, Any], last: bool = False) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack(">BI", 2 if last else 0, len(data)) + data


def fault(status: int, message: str) -> web.HTTPException:
    text = json.dumps({"code": status, "message": message})
    error = web.HTTPException(text=text, content_type="application/json")
    error.set_status(status)
    return error


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
