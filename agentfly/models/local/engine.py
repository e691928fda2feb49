"""`LocalEngine`: the embedded engine, continuous batching on a transformers model in this process."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentfly.errors import ConfigError, ModelError
from agentfly.models.engine import Completion, EngineInfo, Piece, Sampling, piece_of
from agentfly.models.local.request import make_sequence
from agentfly.models.local.tuning import default_prefill, default_threads
from agentfly.models.stopping import Decode, StopText
from agentfly.models.text import load_decoder
from agentfly.resources.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentfly.models.local.core import EngineCore
    from agentfly.models.local.thread import EngineThread, Outcome

_FAILURES_ALLOWED = 3


class LocalEngine(Resource):
    """A decoder-only model of transformers, sampled by continuous batching on a CPU or one GPU.

    Calls join the running batch at any step and leave it when they end. Keys and values of ended
    calls are kept, so that the next turn of a rollout, and whoever else begins with the same
    tokens, computes only what is new. The same seed, prompt and weights give the same completion
    whatever else runs, up to the rounding of the matrix products.

    Args:
        path: folder in Hugging Face format.
        dtype: of the weights and the cache: `float32`, `bfloat16`, `float16`, or `auto` (as saved).
        device: a torch device.
        threads: cores that one operation may use; None takes 1 for a tiny model, else half of the machine's.
        max_context: a limit below the model's own.
        max_running: most calls that run together; further ones wait.
        cache_bytes: memory for the keys and values of running calls.
        prefix_bytes: memory for those of ended calls; 0 keeps none.
        prefill_tokens: most prompt tokens computed in one step; None takes what a CPU does in about a second.
        share_tokens: a call waits for one in its prompt when it saves at least so many tokens.

    Raises:
        ConfigError: an option is out of range.
    """

    def __init__(
        self,
        path: str,
        *,
        dtype: str = "float32",
        device: str = "cpu",
        threads: int | None = None,
        max_context: int | None = None,
        max_running: int = 256,
        cache_bytes: int = 2 << 30,
        prefix_bytes: int = 512 << 20,
        prefill_tokens: int | None = None,
        share_tokens: int = 16,
    ) -> None:
        for name, value, least in (
            ("threads", threads, 1),
            ("max_context", max_context, 1),
            ("max_running", max_running, 1),
            ("cache_bytes", cache_bytes, 1),
            ("prefix_bytes", prefix_bytes, 0),
            ("prefill_tokens", prefill_tokens, 0),
            ("share_tokens", share_tokens, 1),
        ):
            if value is not None and value < least:
                raise ConfigError(f"engine option {name} is {value}: it must be at least {least}")
        self._path = path
        self._dtype = dtype
        self._device = device
        self._threads = threads
        self._max_context = max_context
        self._max_running = max_running
        self._cache_bytes = cache_bytes
        self._prefix_bytes = prefix_bytes
        self._prefill_tokens = prefill_tokens
        self._share_tokens = share_tokens
        self._ids = itertools.count()
        self._calls: dict[int, asyncio.Queue[Completion | Piece | ModelError]] = {}
        self._decode: Decode | None = None
        self._thread: EngineThread | None = None
        self._core: EngineCore | None = None

    async def start(self) -> None:
        """Load the model and begin to serve.

        Raises:
            ConfigError: torch or transformers is not installed.
            ModelError: the model can't be loaded, or it needs something that the engine hasn't.
        """
        try:
            from agentfly.models.local.thread import EngineThread
        except ImportError as error:
            raise ConfigError(f"the transformers engine needs {error.name}: pip install agentfly-rl[native]") from error
        thread = EngineThread(self._load, self._deliver)
        try:
            await thread.start()
        except asyncio.CancelledError:
            thread.end()
            raise
        self._thread = thread

    def _load(self) -> EngineCore:
        import torch

        from agentfly.models.local.core import EngineCore
        from agentfly.models.local.loading import load_model
        from agentfly.models.local.scheduler import Limits

        # The setting is of the calling thread, which is the engine's. One until the size is known:
        # several on a busy machine can make the start many times slower.
        torch.set_num_threads(self._threads or 1)
        model = load_model(self._path, dtype=self._dtype, device=self._device, max_context=self._max_context)
        torch.set_num_threads(self._threads or default_threads(model.parameters, os.cpu_count() or 1))
        prefill = self._prefill_tokens
        limits = Limits(
            rows=self._max_running,
            cached_tokens=self._cache_bytes // model.shape.bytes_per_token,
            prefill_tokens=prefill if prefill is not None else default_prefill(model.parameters, model.on_cpu),
            share_tokens=self._share_tokens,
        )
        self._core = EngineCore(model, limits, prefix_bytes=self._prefix_bytes)
        return self._core

    async def stop(self) -> None:
        """End the engine; unfinished calls fail with `ModelError`."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            await thread.stop()

    async def healthy(self) -> bool:
        """Whether it runs and its last steps didn't all fail."""
        return self._thread is not None and self._thread.failures < _FAILURES_ALLOWED

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> Completion:
        """Sample one completion; see `Engine.generate`. A cancelled call leaves the batch at the next step."""
        with self._call(prompt_ids, sampling, session, priority, streamed=False) as outcomes:
            outcome = await outcomes.get()
        if isinstance(outcome, Completion):
            return outcome
        assert isinstance(outcome, ModelError)
        raise outcome

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> AsyncIterator[Piece]:
        """See `Engine.stream`: a piece for each step, several in one when the caller is slow."""
        told = 0
        with self._call(prompt_ids, sampling, session, priority, streamed=True) as outcomes:
            while True:
                news = [await outcomes.get()]
                while not outcomes.empty():
                    news.append(outcomes.get_nowait())
                if isinstance(news[-1], Completion):
                    yield piece_of(news[-1], told)
                    return
                if isinstance(news[-1], ModelError):
                    raise news[-1]
                piece = _joined([item for item in news if isinstance(item, Piece)])
                told += len(piece.ids)
                yield piece

    @contextmanager
    def _call(
        self, prompt_ids: Sequence[int], sampling: Sampling, session: str, priority: int, *, streamed: bool
    ) -> Iterator[asyncio.Queue[Completion | Piece | ModelError]]:
        """A call for the block; whoever leaves it before its end takes it out of the batch."""
        thread, core = self._running()
        sequence = make_sequence(
            next(self._ids),
            prompt_ids,
            sampling,
            session=session,
            priority=priority,
            vocab_size=core.model.vocab_size,
            max_context=core.model.max_context,
            stop_text=StopText(sampling.stop, self._decoder()) if any(sampling.stop) else None,
            streamed=streamed,
        )
        outcomes: asyncio.Queue[Completion | Piece | ModelError] = asyncio.Queue()
        self._calls[sequence.id] = outcomes
        thread.post(lambda core: core.add(sequence))
        try:
            yield outcomes
        except BaseException:
            thread.post(lambda core: core.cancel(sequence.id))
            raise
        finally:
            del self._calls[sequence.id]

    async def abort(self, session: str) -> None:
        """End the session's running calls with what they have, and forget its cache."""
        thread, _ = self._running()
        await thread.call(lambda core: thread.deliver(core.abort(session)))

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace all weights in place, between two steps.

        Running calls go on, on the keys and values that they have; their further tokens carry the
        new version. Kept prefixes are dropped.

        Args:
            weights: Hugging Face name to numpy array or tensor; of tied weights one name is enough.
            version: of these weights.

        Raises:
            ModelError: names are unknown or missing, or shapes differ; then nothing was replaced.
        """
        thread, _ = self._running()
        await thread.call(lambda core: core.update_weights(weights, version))

    async def pause(self) -> None:
        """Take no further step; calls wait. Returns when no step is under way."""
        await self._running()[0].pause()

    async def resume(self) -> None:
        """Go on after `pause`."""
        await self._running()[0].resume()

    async def info(self) -> EngineInfo:
        """The longest context and the version of the weights."""
        _, core = self._running()
        return EngineInfo(core.model.max_context, core.version)

    async def stats(self) -> dict[str, float]:
        """Tokens since start (prompt, cached, generated), calls running and waiting, memory."""
        thread, _ = self._running()
        return await thread.call(lambda core: core.stats())

    def _running(self) -> tuple[EngineThread, EngineCore]:
        if self._thread is None or self._core is None:
            raise ModelError(f"the engine of {self._path!r} isn't running: start it first")
        return self._thread, self._core

    def _decoder(self) -> Decode:
        if self._decode is None:
            self._decode = load_decoder(self._path)
        return self._decode

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for identity, outcome in outcomes:
            if (call := self._calls.get(identity)) is not None:  # else cancelled at the same moment
                call.put_nowait(outcome)


def _joined(pieces: Sequence[Piece]) -> Piece:
    """One piece of several that follow each other."""
    return Piece(
        [token for piece in pieces for token in piece.ids],
        [logprob for piece in pieces for logprob in piece.logprobs],
        [version for piece in pieces for version in piece.policy_versions],
    )
