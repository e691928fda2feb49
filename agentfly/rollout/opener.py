"""Opens a rollout's conversation with the model: leases the engine, picks the form that it speaks."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly.agent import Tool
from agentfly.context import Context
from agentfly.errors import ConfigError
from agentfly.models.engine import Engine, Message
from agentfly.models.spec import ModelSpec
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.conversation import ChatConversation, Conversation, TokenConversation


def load_format(model: ModelSpec, tools: Sequence[Tool]) -> ChatFormat | None:
    """The chat format of a model that speaks tokens; None for one that speaks messages.

    Args:
        tools: of the agent; if there are any the format must be able to read calls.

    Raises:
        ConfigError: the model's folder or its tokenizer isn't there, or the format isn't known, or it can't read the
            tool calls that it writes.
    """
    if model.speaks == "messages":
        return None
    chat = ChatFormat.load(model.path, family=model.family, options=model.chat_options)
    if tools:
        chat.check_tools()
    return chat


class ConversationOpener:
    """One for each process: the tokenizer and the tool schemas are prepared once.

    Args:
        model: the pool of engines.
        tools: of the agent.
    """

    def __init__(self, model: ModelSpec, tools: Sequence[Tool]) -> None:
        self._model = model
        self._schemas = [tool.spec for tool in tools]
        self._format = load_format(model, tools)

    async def policy(self, ctx: Context) -> tuple[Engine, ChatFormat, int]:
        """An engine that is leased to the rollout, its chat format, and its longest context.

        Raises:
            ResourceError, ModelError: there is no engine to be had.
            ConfigError: the engine gives no tokens.
        """
        if self._format is None:
            raise ConfigError(f"engine {self._model.engine!r} gives no tokens: an agent behind the gateway needs them")
        engine: Engine = await ctx.acquire(self._model)
        return engine, self._format, (await engine.info()).max_context

    async def open(self, ctx: Context, messages: Sequence[Message]) -> Conversation:
        """A conversation on an engine that is leased to the rollout.

        Raises:
            ResourceError, ModelError: there is no engine to be had.
        """
        engine = await ctx.acquire(self._model)
        if self._format is None:
            return ChatConversation(engine, messages, self._schemas, session=ctx.rollout_id)
        info = await engine.info()
        return TokenConversation(
            engine,
            self._format,
            messages,
            self._schemas,
            session=ctx.rollout_id,
            max_context=info.max_context,
            priority=int(ctx.priority),
        )
