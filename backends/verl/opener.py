"""Opens a rollout's conversation with verl's rollout servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agentfly.backends.verl.engine import CallLog, Server, VerlEngine

from agentfly.context import Context
from agentfly.errors import ConfigError
from agentfly.models.engine import Message
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.conversation import TokenConversation

Render = Callable[[Sequence[Message]], Awaitable[list[int]]]


class VerlOpener:
    """For one rollout; each attempt at it opens a conversation anew.

    Args:
        server: verl's client.
        format: of the model.
        tools: schemas of the agent's tools.
        params: verl's sampling parameters.
        media: images and the like of the prompt, as `generate` takes them; `render` may add to it.
        render: gives the tokens of the opening where the format can't, as with images; None takes the format's.
        prompt_length, response_length: most tokens of the opening, and of all that follows it.
        model_length: most tokens that the servers take in all; None where they don't say.

    Attributes:
        media, prompt_length: as given.
        log: the calls of the latest attempt.
        opening: its opening's tokens.
    """

    def __init__(
        self,
        server: Server,
        format: ChatFormat,
        tools: Sequence[Mapping[str, Any]],
        *,
        params: Mapping[str, Any],
        media: Mapping[str, Any],
        render: Render | None,
        prompt_length: int,
        response_length: int,
        model_length: int | None,
    ) -> None:
        self._server = server
        self._format = format
        self._tools = tools
        self._params = params
        self.media = media
        self._render = render
        self.prompt_length = prompt_length
        self._response_length = response_length
        self._model_length = model_length
        self.log = CallLog()
        self.opening: list[int] = []

    async def open(self, ctx: Context, messages: Sequence[Message]) -> TokenConversation:
        """A conversation that never outgrows the rows of verl.

        Raises:
            ConfigError: the opening is longer than verl's prompt length, or the format has no form for it.
        """
        render = self._render
        self.opening = self._format.render(messages, self._tools) if render is None else await render(messages)
        if len(self.opening) > self.prompt_length:
            raise ConfigError(
                f"the opening of task {ctx.task.id!r} has {len(self.opening)} tokens, tools and system message "
                f"included: raise data.max_prompt_length ({self.prompt_length}) or shorten it"
            )
        limit = len(self.opening) + self._response_length
        if self._model_length is not None:
            limit = min(limit, self._model_length)
        self.log = CallLog()
        engine = VerlEngine(self._server, self._params, self.media, limit, self.log)
        return TokenConversation(
            engine,
            self._format,
            messages,
            self._tools,
            session=f"{ctx.rollout_id}",
            max_context=limit,
            opening=self.opening,
        )
