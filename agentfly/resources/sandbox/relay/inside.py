"""Runs in a sandbox that is reached by commands alone: keeps the controller running, and asks it for a command.

`keep FOLDER` starts the controller, hands its answers out, and stays. `ask FOLDER REQUEST` is a command of the host's:
it hands a request over a socket to the keeper and prints the answer. A command that is killed takes its request back.
Standard library only.
"""

from __future__ import annotations

import base64
import marshal
import os
import selectors
import socket
import sys
import time
from types import ModuleType
from typing import Any

GONE = 7
_PATIENCE = 60.0
_SLOW_READER = 10.0
_MOST = 1 << 31
_REMEMBERED = 8  # answers, for those who ask again


def main() -> None:
    """See above."""
    mode, folder, *rest = sys.argv[1:]
    if mode == "keep":
        Keeper(folder).serve()
    else:
        sys.exit(ask(folder, rest[0]))


def ask(folder: str, request: str) -> int:
    """Hand a request over and print its answer, both in base64; a request that begins with @ is the path of one.

    Returns:
        An exit code; GONE when nobody answers.
    """
    if request.startswith("@"):
        with open(request[1:], "rb") as file:
            data = file.read()
        os.unlink(request[1:])
    else:
        data = base64.b64decode(request)
    connection = socket.socket(socket.AF_UNIX)
    if not _connect(connection, os.path.join(folder, "socket"), os.path.join(folder, "starting")):
        return GONE
    answer = bytearray()
    try:
        connection.sendall(data)
        while more := connection.recv(1 << 20):
            answer += more
    except OSError:
        return GONE
    if not answer:
        return GONE
    sys.stdout.write(base64.b64encode(answer).decode())
    sys.stdout.flush()
    return 0


def _connect(connection: socket.socket, path: str, starting: str) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while True:
        is_starting = os.path.exists(starting)  # before it is tried: what listens is starting no longer
        try:
            connection.connect(path)
            return True
        except OSError:
            if not is_starting or time.monotonic() > deadline:
                return False
            time.sleep(0.02)


class Keeper:
    """Between commands and the controller.

    Args:
        folder: with `bundle`, `boot` and `settings`; where the socket is made.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._frames: Any = ModuleType("frames")
        with open(os.path.join(folder, "bundle"), "rb") as file:
            modules = dict(marshal.loads(file.read()))
        exec(next(code for name, code in modules.items() if name.endswith(".frames")), self._frames.__dict__)
        self._selector = selectors.DefaultSelector()
        self._clients: dict[socket.socket, Any] = {}
        self._waiting: dict[bytes, socket.socket] = {}
        self._given: dict[bytes, bytes] = {}
        self._answers: Any = self._frames.Inbox(_MOST)
        self._controller = self._start()

    def serve(self) -> None:
        """Until the controller has ended."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(self._folder, "socket"))
        listener.listen(128)
        os.unlink(os.path.join(self._folder, "starting"))
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        self._selector.register(self._controller, selectors.EVENT_READ, self._answer)
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _start(self) -> socket.socket:
        """Start the controller, and return when it is ready."""
        ours, theirs = socket.socketpair()
        bundle = os.open(os.path.join(self._folder, "bundle"), os.O_RDONLY)
        with open(os.path.join(self._folder, "boot")) as file:
            boot = file.read()
        if os.fork() == 0:
            for descriptor in (theirs.fileno(), bundle):
                os.set_inheritable(descriptor, True)
            os.execv(sys.executable, [sys.executable, "-c", boot, str(theirs.fileno()), str(bundle)])
        theirs.close()
        os.close(bundle)
        with open(os.path.join(self._folder, "settings"), "rb") as file:
            ours.sendall(file.read())
        while not self._answers.feed(self._received(ours)):
            pass
        return ours

    def _accept(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        client.settimeout(_SLOW_READER)
        self._clients[client] = self._frames.Inbox(_MOST)
        self._selector.register(client, selectors.EVENT_READ, lambda: self._request(client))

    def _request(self, client: socket.socket) -> None:
        try:
            data = client.recv(1 << 20)
            frames = self._clients[client].feed(data)
        except (OSError, ValueError):
            data, frames = b"", []
        for frame in frames:
            number = frame.get("id", b"")
            if number in self._given:
                self._give(client, self._given[number])
                return
            known = number in self._waiting
            self._waiting[number] = client
            if not known:
                self._controller.sendall(self._frames.encode(frame))
        if not data:
            for number in [number for number, waiting in self._waiting.items() if waiting is client]:
                del self._waiting[number]
                self._controller.sendall(self._frames.encode({"id": number, "op": "cancel"}))
            self._forget(client)

    def _answer(self) -> None:
        for frame in self._answers.feed(self._received(self._controller)):
            client = self._waiting.pop(frame.get("id", b""), None)
            if client is not None:
                self._given[frame["id"]] = self._frames.encode(frame)
                self._give(client, self._given[frame["id"]])
                while len(self._given) > _REMEMBERED:
                    del self._given[next(iter(self._given))]

    def _give(self, client: socket.socket, answer: bytes) -> None:
        try:
            client.sendall(answer)
        except OSError:
            pass
        self._forget(client)

    def _forget(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        del self._clients[client]
        client.close()

    def _received(self, controller: socket.socket) -> bytes:
        data = controller.recv(1 << 20)
        if not data:
            os._exit(0)
        return data


if __name__ == "__main__":
    main()
