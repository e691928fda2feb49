"""One call answered by an engine: the prompt's tokens in, an answer in words and tokens out, told as it is sampled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from agentfly.errors import ModelError
from agentfly.models.dialects.common import Answer, ChatRequest
from agentfly.models.engine import Completion, Engine, Sampling
from agentfly.models.stopping import held_back
from agentfly.rollout.chat_format import ChatFormat

Tell = Callable[[str], Awaitable[None]]

# Longest beginning of a tool call that may still turn out to be text.
_TAG = 24


async def sample(
    engine: Engine,
    format: ChatFormat,
    prompt: Sequence[int],
    request: ChatRequest,
    sampling: Sampling,
    *,
    session: str,
    priority: int = 0,
    tell: Tell | None = None,
) -> Completion:
    """Sample the answer to a call.

    Args:
        tell: gets the text as it comes; None waits for the end.

    Raises:
        ModelError: the engine failed or aborted.
    """
    if tell is None:
        completion = await engine.generate(prompt, sampling, session=session, priority=priority)
    else:
        completion = await _listen(engine, format, prompt, request, sampling, session, priority, tell)
    if completion.finish_reason == "abort":
        raise ModelError(f"the engine aborted a call of {session}")
    return completion


async def _listen(
    engine: Engine,
    format: ChatFormat,
    prompt: Sequence[int],
    request: ChatRequest,
    sampling: Sampling,
    session: str,
    priority: int,
    tell: Tell,
) -> Completion:
    ids: list[int] = []
    logprobs: list[float] = []
    versions: list[int] = []
    told, due = 0, 1
    async for piece in engine.stream(prompt, sampling, session=session, priority=priority):
        ids += piece.ids
        logprobs += piece.logprobs
        versions += piece.policy_versions
        if piece.finish_reason is not None:
            return Completion(ids, logprobs, versions, piece.finish_reason, piece.stop)
        if len(ids) >= due:
            # Long answers are looked at less often: the whole of them is parsed each time.
            due = len(ids) + 1 + len(ids) // 32
            text = safe_text(format, ids, request, prompt, sampling.stop)
            if len(text) > told:
                await tell(text[told:])
                told = len(text)
    raise ModelError(f"the engine's stream of {session} broke off")


def safe_text(
    format: ChatFormat, ids: Sequence[int], request: ChatRequest, prompt: Sequence[int], stops: Sequence[str]
) -> str:
    """The part of an unfinished answer's text that no further token can change."""
    turn = format.parse(ids, request.tools, prompt)
    if turn.calls:
        return ""  # from here on it is a call, and told whole at the end
    content = turn.message["content"]
    if request.tools:
        opened = max(content.rfind(mark, max(0, len(content) - _TAG)) for mark in "<[{")
        content = content[:opened] if opened >= 0 else content
    content = content.rstrip("\ufffd")
    return content[: len(content) - held_back(content, stops)].rstrip()


def answer_of(
    format: ChatFormat,
    request: ChatRequest,
    prompt: Sequence[int],
    completion: Completion,
    *,
    id: str,
    created: int,
    turn: int,
) -> Answer:
    """A completion in words."""
    parsed = format.parse(completion.ids, request.tools, prompt, turn=turn, stop=completion.stop)
    reason = "length" if completion.finish_reason == "length" else "stop"
    if parsed.message.get("tool_calls") and reason == "stop":
        reason = "tool_calls"
    tokens = [format.decode([token]) for token in completion.ids] if request.logprobs else []
    return Answer(
        id, created, parsed.message, reason, prompt, completion.ids, completion.logprobs, tokens, completion.stop
    )
