"""Any served model that speaks OpenAI's chat protocol: for evaluation, it gives no tokens to train on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from agentfly.errors import ConfigError, ModelError, RateLimited
from agentfly.models.chat_wire import answer_of, sendable
from agentfly.models.engine import ChatCompletion, Message, Sampling
from agentfly.resources.api.bill import ApiUsage
from agentfly.resources.api.gate import Gate, charge
from agentfly.resources.api.limits import read_limits
from agentfly.resources.api.pushback import pushback
from agentfly.resources.resource import Resource

if TYPE_CHECKING:
    import openai

_NO_KEY = "none"


class OpenAIEngine(Resource):
    """A `ChatEngine` over the network; many conversations share one.

    Rate limits, server errors and lost connections are retried by the client, with growing pauses or
    the pause that the server asks for (`Retry-After`, up to two minutes).

    Args:
        path: the model's name at the endpoint.
        base_url: of the endpoint, such as `http://host:8000/v1`; None is OpenAI's own, or what the
            variable `OPENAI_BASE_URL` says.
        api_key_env: the environment variable that holds the key. The key itself is read where the
            engine runs, and is never pickled or logged.
        timeout: seconds for one attempt.
        max_retries: attempts after the first.
        limit_field: what the endpoint calls the limit of a completion; OpenAI's reasoning models
            want `max_completion_tokens`.
        extra_body: further fields of every request, such as `{"chat_template_kwargs": {...}}`.
        send_reasoning: give the endpoint back the thoughts that it sent; most refuse or ignore them.
        limits: fields of `ApiLimits`, such as `{"requests_per_minute": 500, "budget": 20.0}`: they hold for all
            conversations of the engine together, and a refusal of one call stops all. `max_concurrency` of the
            model bounds how many conversations there are.

    Raises:
        ConfigError: no model's name, or wrong limits.
    """

    def __init__(
        self,
        path: str,
        *,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        timeout: float = 300.0,
        max_retries: int = 6,
        limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        extra_body: Mapping[str, Any] | None = None,
        send_reasoning: bool = False,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        if not path:
            raise ConfigError("an openai engine needs the model's name: set the model's `path`")
        self._model = path
        self._base_url = base_url
        self._api_key_env = api_key_env
        self._timeout = timeout
        self._max_retries = max_retries
        self._limit_field = limit_field
        self._extra_body = dict(extra_body or {})
        self._send_reasoning = send_reasoning
        self._limits = None if limits is None else read_limits(limits, f"model {path}", max_retries)
        self._gate: Gate | None = None
        self._client: openai.AsyncOpenAI | None = None
        self._counters = {"requests": 0.0, "failed": 0.0, "prompt_tokens": 0.0, "completion_tokens": 0.0}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the client, which holds connections and the key, and who waits for it."""
        return {**self.__dict__, "_client": None, "_gate": None}

    async def start(self) -> None:
        """Make the client.

        Raises:
            ConfigError: the package `openai` is missing, or OpenAI's own endpoint has no key.
        """
        try:
            from openai import AsyncOpenAI
        except ImportError as error:
            raise ConfigError(
                "a served model is reached by the openai package: pip install agentfly-rl[openai]"
            ) from error
        key = os.environ.get(self._api_key_env)
        if not key and self._base_url is None and "OPENAI_BASE_URL" not in os.environ:
            raise ConfigError(
                f"the environment variable {self._api_key_env} holds no key for OpenAI: set it where the engine runs "
                "(on a cluster in runtime_env's env_vars), or name another endpoint by base_url"
            )
        # Always a key of ours: without one the client would send OPENAI_API_KEY to whatever endpoint this is.
        retries = self._max_retries if self._limits is None else 0  # what one call learns is to stop all
        self._client = AsyncOpenAI(
            api_key=key or _NO_KEY, base_url=self._base_url, timeout=self._timeout, max_retries=retries
        )
        self._gate = None if self._limits is None else Gate(f"model {self._model}", self._limits, _refusal)

    async def stop(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Sampling, *, session: str = ""
    ) -> ChatCompletion:
        """As `ChatEngine.chat`; a conversation longer than the context gives an empty answer that ended by `length`."""
        import openai

        client = self._client
        if client is None:
            raise ModelError(f"the client of model {self._model} is not started")
        self._counters["requests"] += 1
        try:
            ask = partial(self._ask, client, self._request(messages, tools, sampling))
            completion = await (ask() if self._gate is None else self._gate.call(ask))
        except openai.BadRequestError as error:
            if _too_long(error):
                return ChatCompletion({"role": "assistant", "content": ""}, "length")
            raise self._failed(error, client) from error
        except (openai.OpenAIError, ValueError) as error:
            raise self._failed(error, client) from error
        for name in ("prompt_tokens", "completion_tokens"):
            self._counters[name] += completion.usage.get(name, 0)
        return completion

    async def api_usage(self) -> ApiUsage:
        """What the calls have come to, in money too; zeros without limits."""
        return ApiUsage() if self._gate is None else self._gate.usage

    async def stats(self) -> dict[str, float]:
        """Counters since start: requests, failed, prompt_tokens, completion_tokens."""
        return dict(self._counters)

    async def _ask(self, client: openai.AsyncOpenAI, request: Mapping[str, Any]) -> ChatCompletion:
        completion = answer_of(await client.chat.completions.create(**request))
        charge(
            input_tokens=completion.usage.get("prompt_tokens", 0),
            output_tokens=completion.usage.get("completion_tokens", 0),
        )
        return completion

    def _request(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Sampling
    ) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [sendable(message, self._send_reasoning) for message in messages],
            "temperature": sampling.temperature,
            self._limit_field: sampling.max_tokens,
        }
        if tools:
            request["tools"] = [dict(tool) for tool in tools]
        if sampling.top_p != 1.0:
            request["top_p"] = sampling.top_p
        if sampling.seed is not None:
            # Endpoints take a signed 64-bit number; ours are unsigned.
            request["seed"] = sampling.seed % 2**63
        if self._extra_body:
            request["extra_body"] = self._extra_body
        return request

    def _failed(self, error: Exception, client: openai.AsyncOpenAI) -> ModelError:
        self._counters["failed"] += 1
        text = " ".join(str(error).split()) or type(error).__name__
        if client.api_key not in ("", _NO_KEY):
            text = text.replace(client.api_key, "***")
        return ModelError(f"model {self._model} at {client.base_url}: {text[:500]}")


def _refusal(error: BaseException, now: float) -> RateLimited | None:
    """Beside refusals for the rate: what the client itself would try again, server errors and lost connections."""
    import openai

    if (refused := pushback(error, now)) is not None:
        return refused
    lost = isinstance(error, (openai.APIConnectionError, openai.InternalServerError))
    return RateLimited(f"{type(error).__name__}: {error}") if lost else None


def _too_long(error: openai.BadRequestError) -> bool:
    """Whether an endpoint refused the conversation for its length, as OpenAI and vLLM say it."""
    return error.code == "context_length_exceeded" or "maximum context length" in str(error)
