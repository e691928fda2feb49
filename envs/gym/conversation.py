"""A conversation whose assistant is played from outside, one turn at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentfly.models.engine import Message, Sampling
from agentfly.rollout.conversation import MessageConversation
from agentfly.rollout.turns import AssistantTurn


class PlayedConversation(MessageConversation):
    """The `Conversation` of a rollout that somebody else steps.

    Args:
        messages: the opening.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__(messages)
        self.wanted = asyncio.Event()
        self._turn: asyncio.Future[AssistantTurn] | None = None

    def say(self, turn: AssistantTurn) -> None:
        """Give the turn that `next` waits for; only after `wanted`."""
        assert self._turn is not None, "nobody waits for a turn"
        self.wanted.clear()
        self._turn.set_result(turn)

    async def next(self, sampling: Sampling) -> AssistantTurn:
        self._turn = asyncio.get_running_loop().create_future()
        self.wanted.set()
        turn = await self._turn
        self.messages.append(turn.message)
        return turn
