"""A client's two calls to the manager: one that speaks, one that waits for answers."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import ray

from agentfly.errors import Deadlock, PoolSaturated, ResourceError, StartFailed
from agentfly.resources.card import SpecCard, card_of
from agentfly.resources.core.types import Grant, Lease, Reject, Request
from agentfly.resources.messages import News, Replay, Standing, Update
from agentfly.resources.spec import ResourceSpec

_RETRY = 0.2


@dataclass(frozen=True)
class Answered:
    """A lease, and the actor handle of its host; None when the host is dead already."""

    lease: Lease
    host: Any


class ManagerLink:
    """What a process has asked for and been given.

    Requests and releases are gathered while a call to the manager is under way and go with the next one; answers
    come back with it, or on a single waiting call. Signs of life are sent from a thread, so that a busy event loop
    isn't taken for a dead process. When the manager is restarted, or has taken this process for dead, it is told
    all that the process has and wants.

    Args:
        manager: its actor handle.
    """

    def __init__(self, manager: Any) -> None:
        self.id = uuid4().hex
        self._manager = manager
        self._specs: dict[str, SpecCard] = {}
        self._waiting: dict[str, tuple[Request, asyncio.Future[Answered]]] = {}
        self._held: dict[str, tuple[Request, Lease]] = {}
        self._hosts: dict[str, Any] = {}
        self._replays: dict[tuple[str, str], Replay] = {}
        self._outgoing = Update()
        self._something = asyncio.Event()
        self._standing = 0  # how often it has been said
        self._saying = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = threading.Event()
        self._heartbeat = 1.0
        self._failure: ResourceError | None = None

    async def open(self) -> None:
        """Make this process known to the manager.

        Raises:
            ResourceError: it is gone.
        """
        await self._say_standing(0)
        if self._failure is not None:
            raise self._failure
        self._tasks = [asyncio.create_task(self._speak()), asyncio.create_task(self._listen())]
        threading.Thread(target=self._show_life, name="resource-heartbeat", daemon=True).start()

    async def close(self) -> None:
        """Give everything back and end."""
        self._ended.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail(ResourceError("the resource client is closed"))
        try:
            await self._manager.goodbye.remote(self.id)
        except ray.exceptions.RayError:
            pass  # no manager, no leases

    @property
    def closed(self) -> bool:
        """Whether everything has been given back."""
        return self._ended.is_set()

    # Requests

    def ask(self, request: Request, specs: list[ResourceSpec[Any]]) -> asyncio.Future[Answered]:
        """Ask for a lease.

        Args:
            specs: of the request's pool and claims.

        Returns:
            The lease to come; `give_back` takes the request back.
        """
        if self._failure is not None:
            raise self._failure
        for spec in specs:
            if spec.key not in self._specs:
                self._specs[spec.key] = self._outgoing.specs[spec.key] = card_of(spec)
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[request.ticket] = (request, answer)
        self._outgoing.acquires[request.ticket] = request
        self._something.set()
        return answer

    def give_back(self, ticket: str) -> None:
        """End a lease, or take a request back; unknown tickets change nothing. Never blocks."""
        waiting = self._waiting.pop(ticket, None)
        if waiting is None and self._held.pop(ticket, None) is None:
            return
        if self._outgoing.acquires.pop(ticket, None) is None:  # else it was never sent
            self._release(ticket)

    def _release(self, ticket: str) -> None:
        self._outgoing.releases.append(ticket)
        self._something.set()

    def suspect(self, lease: Lease) -> None:
        """A call failed as if the lease's host were dead."""
        self._outgoing.suspects.add((lease.pool, lease.host))
        self._something.set()

    def remember(self, replay: Replay) -> None:
        """A broadcast that a restarted manager must know."""
        self._replays[replay.pool, replay.method] = replay

    # The calls

    async def _speak(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            update, self._outgoing = self._outgoing, Update()
            if update:
                standing = self._standing
                await self._hear(self._manager.update.remote(self.id, update), standing)

    async def _listen(self) -> None:
        while True:
            standing = self._standing
            await self._hear(self._manager.news.remote(self.id), standing)

    async def _hear(self, reply: Any, standing: int) -> None:
        """Take in the answer to a call; on a lost one say everything anew."""
        try:
            news: News = await reply
        except ray.exceptions.ActorUnavailableError:
            await self._say_standing(standing)
        except ray.exceptions.RayError as error:
            self._fail(_gone(error))
            await asyncio.Event().wait()  # nothing more to do, until `close`
        else:
            self._take(news)
            if news.unknown:
                await self._say_standing(standing)

    async def _say_standing(self, standing: int) -> None:
        """Tell the manager all, unless that has been done since."""
        async with self._saying:
            while self._standing == standing and self._failure is None:
                # Where the answer to an update was lost, so may have been the update.
                self._outgoing.specs.clear()
                self._outgoing.acquires.clear()
                said = Standing(
                    dict(self._specs),
                    list(self._held.values()),
                    [request for request, _ in self._waiting.values()],
                    list(self._replays.values()),
                )
                try:
                    news: News = await self._manager.rejoin.remote(self.id, said)
                except ray.exceptions.ActorUnavailableError:
                    await asyncio.sleep(_RETRY)
                except ray.exceptions.RayError as error:
                    self._fail(_gone(error))
                else:
                    self._standing += 1
                    for ticket in news.lost:
                        self._held.pop(ticket, None)
                    self._take(news)

    def _take(self, news: News) -> None:
        self._hosts.update(news.hosts)
        self._heartbeat = news.heartbeat or self._heartbeat
        for answer in news.answers:
            if isinstance(answer, Grant):
                self._granted(answer.lease)
            else:
                self._refused(answer)

    def _granted(self, lease: Lease) -> None:
        waiting = self._waiting.pop(lease.ticket, None)
        if waiting is None:
            if lease.ticket not in self._held:
                self._release(lease.ticket)  # taken back meanwhile
            return
        request, answer = waiting
        self._held[lease.ticket] = (request, lease)
        if answer.done():
            self.give_back(lease.ticket)  # cancelled in this very moment
        else:
            answer.set_result(Answered(lease, self._hosts.get(lease.host)))

    def _refused(self, reject: Reject) -> None:
        waiting = self._waiting.pop(reject.ticket, None)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_exception(_error(reject))

    def _show_life(self) -> None:
        while not self._ended.wait(self._heartbeat):
            try:
                self._manager.seen.remote(self.id)
            except Exception:
                return  # Ray is shutting down

    def _fail(self, error: ResourceError) -> None:
        self._failure = error
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
        self._waiting.clear()


def new_replay(spec: ResourceSpec[Any], method: str, reference: Any) -> Replay:
    """A broadcast of this moment."""
    return Replay(spec.key, method, reference, time.time())


def _error(reject: Reject) -> ResourceError:
    match reject.error:
        case "saturated":
            return PoolSaturated(reject.message, reject.waiting, reject.retry_after)
        case "start_failed":
            return StartFailed(reject.message)
        case "deadlock":
            return Deadlock(reject.message)
        case _:
            return ResourceError(reject.message)


def _gone(error: Exception) -> ResourceError:
    if isinstance(error, ray.exceptions.RayTaskError):
        return ResourceError(f"the resource manager failed: {type(error.cause).__name__}: {error.cause}")
    return ResourceError(f"the resource manager is gone ({type(error).__name__}): {error}".splitlines()[0])
