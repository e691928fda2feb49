"""A client's side of the conversation with the manager, without a cluster: what is said, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import ray
from resources.toys import Counter

from agentfly.errors import PoolSaturated, ResourceError, StartFailed
from agentfly.resources import ResourceSpec
from agentfly.resources.core.types import Grant, Lease, Reject, Request
from agentfly.resources.link import Answered, ManagerLink
from agentfly.resources.messages import News, Standing, Update

SPEC = ResourceSpec(Counter)


class Remote:
    """A method of an actor handle."""

    def __init__(self, method: Any) -> None:
        self.remote = method


class FakeManager:
    """Notes what it is told; answers when the test says so."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.standings: list[Standing] = []
        self.open = asyncio.Event()
        self.open.set()
        self.letters: asyncio.Queue[News | Exception] = asyncio.Queue()
        self.failure: Exception | None = None
        self.update = Remote(self._update)
        self.rejoin = Remote(self._rejoin)
        self.news = Remote(lambda _: self._news())
        self.goodbye = Remote(lambda _: asyncio.sleep(0))
        self.seen = Remote(lambda _: None)

    async def _update(self, _: str, update: Update) -> News:
        self.updates.append(update)
        await self.open.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return News()

    async def _rejoin(self, _: str, standing: Standing) -> News:
        self.standings.append(standing)
        return News()

    async def _news(self) -> News:
        letter = await self.letters.get()
        if isinstance(letter, Exception):
            raise letter
        return letter


def ask(link: ManagerLink, ticket: str) -> asyncio.Future[Answered]:
    return link.ask(Request(ticket, link.id, SPEC.key), [SPEC])


def grant(link: ManagerLink, ticket: str, slot: int = 0) -> News:
    return News([Grant(Lease(ticket, link.id, SPEC.key, "h", slot, 1), 0.0)], {"h": "handle"})


async def turn() -> None:
    """Let everything that can happen happen."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def pair() -> Any:
    manager = FakeManager()
    link = ManagerLink(manager)
    await link.open()
    yield manager, link
    await link.close()


async def test_what_comes_during_a_call_goes_with_the_next(pair: tuple[FakeManager, ManagerLink]) -> None:
    manager, link = pair
    manager.open.clear()
    ask(link, "a")
    await turn()
    for ticket in "bcd":
        ask(link, ticket)
    await turn()
    assert [list(update.acquires) for update in manager.updates] == [["a"]]
    manager.open.set()
    await turn()
    assert [list(update.acquires) for update in manager.updates] == [["a"], ["b", "c", "d"]]
    assert [list(update.specs) for update in manager.updates] == [[SPEC.key], []], "a spec is sent once"


async def test_a_request_that_was_never_sent_is_never_sent(pair: tuple[FakeManager, ManagerLink]) -> None:
    manager, link = pair
    ask(link, "a")
    link.give_back("a")
    await turn()
    assert [(list(update.acquires), update.releases) for update in manager.updates] == [([], [])]


async def test_a_request_taken_back_is_released_and_so_is_its_grant(pair: tuple[FakeManager, ManagerLink]) -> None:
    manager, link = pair
    ask(link, "a")
    await turn()
    link.give_back("a")
    link.give_back("a")
    await turn()
    assert [update.releases for update in manager.updates] == [[], ["a"]]
    manager.letters.put_nowait(grant(link, "a"))
    await turn()
    assert manager.updates[-1].releases == ["a"]


async def test_a_grant_to_one_cancelled_in_that_moment_goes_back(pair: tuple[FakeManager, ManagerLink]) -> None:
    manager, link = pair
    answer = ask(link, "a")
    await turn()
    answer.cancel()
    manager.letters.put_nowait(grant(link, "a"))
    await turn()
    assert manager.updates[-1].releases == ["a"]


async def test_answers_find_their_askers(pair: tuple[FakeManager, ManagerLink]) -> None:
    manager, link = pair
    answers = {ticket: ask(link, ticket) for ticket in "abcd"}
    news = grant(link, "a")
    rejects = [
        Reject("b", link.id, "saturated", "full", 7, 1.5),
        Reject("c", link.id, "start_failed", "no"),
        Reject("d", link.id, "stopped", "over"),
    ]
    manager.letters.put_nowait(News([*news.answers, *rejects], news.hosts))
    answered = await answers["a"]
    assert (answered.lease.ticket, answered.host) == ("a", "handle")
    with pytest.raises(PoolSaturated) as caught:
        await answers["b"]
    assert (caught.value.waiting, caught.value.retry_after) == (7, 1.5)
    with pytest.raises(StartFailed):
        await answers["c"]
    with pytest.raises(ResourceError, match="over"):
        await answers["d"]


@pytest.mark.parametrize("how", ["update", "news", "unknown"])
async def test_after_lost_touch_it_says_all_it_has_and_wants(pair: tuple[FakeManager, ManagerLink], how: str) -> None:
    manager, link = pair
    held, waiting = ask(link, "held"), ask(link, "waiting")
    manager.letters.put_nowait(grant(link, "held"))
    await held
    link.give_back("nothing")
    lost = ray.exceptions.ActorUnavailableError("being restarted", None)
    if how == "update":
        manager.failure = lost
        ask(link, "late")
    elif how == "news":
        manager.letters.put_nowait(lost)
    else:
        manager.letters.put_nowait(News(unknown=True))
    await turn()
    standing = manager.standings[-1]
    assert len(manager.standings) == 2, "once, whoever noticed"
    assert list(standing.specs) == [SPEC.key]
    assert [request.ticket for request, _ in standing.held] == ["held"]
    wanted = ["waiting", "late"] if how == "update" else ["waiting"]
    assert [request.ticket for request in standing.waiting] == wanted
    assert not waiting.done()


async def test_a_manager_that_is_gone_fails_all_who_wait(pair: tuple[FakeManager, ManagerLink]) -> None:
    manager, link = pair
    answer = ask(link, "a")
    manager.letters.put_nowait(ray.exceptions.ActorDiedError())
    with pytest.raises(ResourceError, match="manager is gone"):
        await answer
    with pytest.raises(ResourceError, match="manager is gone"):
        ask(link, "b")
