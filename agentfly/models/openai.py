"""Any served model that speaks OpenAI's chat protocol: for evaluation, it gives no tokens to train on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from agentfly.errors import ConfigError, ModelError
from agentfly.models.chat_wire import answer_of, sendable
from agentfly.models.engine import ChatCompletion, Message, Sampling
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
        self._client: openai.AsyncOpenAI | None = None
        self._counters = {"requests": 0.0, "failed": 0.0, "prompt_tokens": 0.0, "completion_tokens": 0.0}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the client, which holds connections and the key."""
        return {**self.__dict__, "_client": None}

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
        self._client = AsyncOpenAI(
            api_key=key or _NO_KEY, base_url=self._base_url, timeout=self._timeout, max_retries=self._max_retries
        )

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
            response = await client.chat.completions.create(**self._request(messages, tools, sampling))
            completion = answer_of(response)
        except openai.BadRequestError as error:
            if _too_long(error):
                return ChatCompletion({"role": "assistant", "content": ""}, "length")
            raise self._failed(error, client) from error
        except (openai.OpenAIError, ValueError) as error:
            raise self._failed(error, client) from error
        for name in ("prompt_tokens", "completion_tokens"):
            self._counters[name] += completion.usage.get(name, 0)
        return completion

    async def stats(self) -> dict[str, float]:
        """Counters since start: requests, failed, prompt_tokens, completion_tokens."""
        return dict(self._counters)

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


def _too_long(error: openai.BadRequestError) -> bool:
    """Whether an endpoint refused the conversation for its length, as OpenAI and vLLM say it."""
    return error.code == "context_length_exceeded" or "maximum context length" in str(error)
