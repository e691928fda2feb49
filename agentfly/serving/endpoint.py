"""Calls of the endpoint, answered by whatever engine of the pool has room."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

from agentfly.errors import AcquireTimeout, ConfigError, ModelError, PoolSaturated, ResourceError
from agentfly.models.dialects.common import Answer, ChatRequest, Dialect, RequestRefused
from agentfly.models.engine import Engine, Sampling
from agentfly.models.spec import ModelSpec
from agentfly.resources import ResourceClient
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.gateway.answering import Tell, answer_of, sample

_UNKNOWN_WAIT = 1.0
Answering = Callable[[ChatRequest, Tell | None], Awaitable[Answer]]


class PoolEndpoint:
    """Answers calls by leases on a pool of engines.

    Args:
        client: the way to the pool.
        model: the pool.
        format: of the model.
        acquire_timeout: seconds that a call may queue for an engine.
    """

    def __init__(
        self, client: ResourceClient, model: ModelSpec, format: ChatFormat, *, acquire_timeout: float | None
    ) -> None:
        self._client = client
        self._model = model
        self._format = format
        self._acquire_timeout = acquire_timeout

    async def answer(self, request: ChatRequest, tell: Tell | None) -> Answer:
        """Answer one call; cancelled, it leaves the engine.

        Raises:
            RequestRefused: the call is wrong, the pool is saturated, or the engine failed.
        """
        prompt = self._prompt(request)
        try:
            lease = await self._client.acquire(self._model, timeout=self._acquire_timeout)
        except (PoolSaturated, AcquireTimeout) as error:
            wait = (error.retry_after if isinstance(error, PoolSaturated) else None) or _UNKNOWN_WAIT
            raise RequestRefused(str(error), status=429, code="rate_limit_exceeded", retry_after=wait) from error
        except ResourceError as error:
            raise RequestRefused(f"no engine is to be had: {error}", status=503, code="no_engine") from error
        try:
            return await self._sample(lease.resource, request, prompt, tell)
        except (ModelError, ResourceError) as error:
            raise RequestRefused(f"the engine failed: {error}", status=503, code="engine_failed") from error
        finally:
            lease.release()

    async def _sample(self, engine: Engine, request: ChatRequest, prompt: list[int], tell: Tell | None) -> Answer:
        room = (await engine.info()).max_context - len(prompt)
        if room < 1:
            message = f"the maximum context length is {room + len(prompt)} tokens, the prompt has {len(prompt)}"
            raise RequestRefused(message, code="context_length_exceeded")
        format, name = self._format, f"af-{uuid4().hex}"
        sampling = sampling_of(request, room, format.stop_token_ids)
        completion = await sample(engine, format, prompt, request, sampling, session=name, tell=tell)
        answer = answer_of(format, request, prompt, completion, id=name, created=int(time.time()), turn=0)
        if request.prompt is None:
            return answer
        ids = [token for token in completion.ids if token not in format.stop_token_ids]
        text = format.decode(ids)
        text = text if completion.stop is None else text.partition(completion.stop)[0]
        return replace(answer, message={"role": "assistant", "content": text})

    def _prompt(self, request: ChatRequest) -> list[int]:
        if isinstance(request.prompt, tuple):
            return list(request.prompt)
        if request.prompt is not None:
            ids = self._format.encode(request.prompt)
        elif request.messages:
            try:
                ids = self._format.render(request.messages, request.tools)
            except ConfigError as error:
                raise RequestRefused(str(error), code="unsupported_messages") from error
        else:
            raise RequestRefused("messages must hold at least one message")
        if not ids:
            raise RequestRefused("the prompt is empty")
        return ids


def sampling_of(request: ChatRequest, room: int, stop_token_ids: tuple[int, ...]) -> Sampling:
    """How a call's tokens are drawn.

    Raises:
        RequestRefused: a number is out of its range.
    """
    for name, value, valid in (
        ("max_tokens", request.max_tokens, request.max_tokens is None or request.max_tokens >= 1),
        ("temperature", request.temperature, request.temperature is None or 0 <= request.temperature <= 100),
        ("top_p", request.top_p, request.top_p is None or 0 < request.top_p <= 1),
    ):
        if not valid:
            raise RequestRefused(f"{name} is {value}, which is out of its range")
    return Sampling(
        max_tokens=room if request.max_tokens is None else min(room, request.max_tokens),
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        stop_token_ids=stop_token_ids,
        stop=tuple(filter(None, request.stop)),
        seed=request.seed,
    )


async def events(dialect: Dialect, request: ChatRequest, answer: Answering) -> AsyncIterator[str]:
    """The answer as server-sent events; whoever stops listening cancels the call.

    Raises:
        RequestRefused: before the first event; later ones become an event.
    """
    emitter = dialect.emitter(request, f"af-{uuid4().hex}", int(time.time()))
    texts: asyncio.Queue[str | None] = asyncio.Queue()
    call = asyncio.ensure_future(answer(request, texts.put))
    call.add_done_callback(lambda _: texts.put_nowait(None))
    told = 0
    try:
        while (text := await texts.get()) is not None:
            yield (emitter.text(text) if told else emitter.begin() + emitter.text(text))
            told += len(text)
        try:
            done = await call
        except RequestRefused as error:
            if not told:
                raise
            yield emitter.failed(error)
            return
        yield (emitter.end(done, told) if told else emitter.begin() + emitter.end(done, told))
    finally:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
