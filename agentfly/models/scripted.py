"""An engine without a model: a function writes the completions. For tests, and for load tests of everything else."""

from __future__ import annotations

import asyncio
import importlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly.errors import ConfigError, ModelError
from agentfly.models.engine import Completion, EngineInfo, FinishReason, Piece, Sampling, piece_of
from agentfly.models.stopping import StopText
from agentfly.resources.resource import Resource

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Text of the whole prompt, number of the turn in its conversation, seed of the sampling (0 when none) -> completion.
Script = Callable[[str, int, int], str]

_MAX_SESSIONS = 100_000


class ScriptedEngine(Resource):
    """An `Engine` that plays a script, at once or at a set speed, every token with log-probability 0.

    The first of the sampling's stop tokens ends a completion that doesn't hold one itself; max_tokens
    cuts it as it would cut a model.

    Args:
        path: a Hugging Face folder; only its tokenizer is used.
        script: what to say, as a function that can be pickled, or as `module:function`.
        seconds_per_token: how long a token takes; 0 answers at once.
        max_context: most tokens of prompt and completion together.

    Raises:
        ConfigError: the script can't be found.
    """

    def __init__(
        self, path: str, script: Script | str, *, seconds_per_token: float = 0.0, max_context: int = 32_768
    ) -> None:
        self._path = path
        self._script = _find(script) if isinstance(script, str) else script
        self._seconds_per_token = seconds_per_token
        self._max_context = max_context
        self._tokenizer: Tokenizer | None = None
        self._version = 0
        self._turns: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._running: dict[str, set[asyncio.Event]] = {}
        self._going = asyncio.Event()
        self._going.set()
        self._prompt_tokens = 0
        self._generated_tokens = 0

    async def start(self) -> None:
        """Load the tokenizer.

        Raises:
            ConfigError: there is none.
        """
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ConfigError("tokenizers are loaded by transformers: pip install agentfly-rl[native]") from error
        file = Path(self._path) / "tokenizer.json"
        if not file.is_file():
            raise ConfigError(f"no tokenizer at {file}: a scripted engine needs the tokenizer of a Hugging Face folder")
        self._tokenizer = Tokenizer.from_file(str(file))

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> Completion:
        """As `Engine.generate`.

        Raises:
            ModelError: the prompt leaves no room, the script failed, or the engine isn't started.
        """
        room = min(sampling.max_tokens, self._max_context - len(prompt_ids))
        if room < 1:
            raise ModelError(f"a prompt of {len(prompt_ids)} tokens leaves no room in a context of {self._max_context}")
        written, stop = self._write(prompt_ids, sampling, self._turn(session, prompt_ids))
        ids = written[:room]
        await self._going.wait()
        version = self._version
        done = await self._take_time(session, len(ids))
        reason: FinishReason = "abort" if done < len(ids) else "stop" if len(written) <= room else "length"
        ids = ids[:done]
        self._prompt_tokens += len(prompt_ids)
        self._generated_tokens += len(ids)
        return Completion(ids, [0.0] * len(ids), [version] * len(ids), reason, stop if reason == "stop" else None)

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> AsyncIterator[Piece]:
        """As `Engine.stream`: a piece for each token, all of them at the end of the time that they take."""
        completion = await self.generate(prompt_ids, sampling, session=session, priority=priority)
        told = max(0, len(completion.ids) - 1)
        for index in range(told):
            part = slice(index, index + 1)
            yield Piece(completion.ids[part], completion.logprobs[part], completion.policy_versions[part])
        yield piece_of(completion, told)

    async def pause(self) -> None:
        """Begin no further completion until `resume`."""
        self._going.clear()

    async def resume(self) -> None:
        """Go on after `pause`."""
        self._going.set()

    async def abort(self, session: str) -> None:
        """End the session's running calls with what they have."""
        for event in self._running.get(session, ()):
            event.set()
        self._turns.pop(session, None)

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Only the version counts."""
        self._version = version

    async def info(self) -> EngineInfo:
        """The context that was set, and the latest version."""
        return EngineInfo(self._max_context, self._version)

    async def stats(self) -> dict[str, float]:
        """Counters since start: prompt_tokens, cached_tokens, generated_tokens, running."""
        return {
            "prompt_tokens": float(self._prompt_tokens),
            "cached_tokens": 0.0,
            "generated_tokens": float(self._generated_tokens),
            "running": float(sum(map(len, self._running.values()))),
        }

    def _write(self, prompt_ids: Sequence[int], sampling: Sampling, turn: int) -> tuple[list[int], str | None]:
        """The whole completion, ended by a stop token when there are any, and the stop text that cut it."""
        if self._tokenizer is None:
            raise ModelError("the scripted engine is not started")
        prompt = self._decode(prompt_ids)
        try:
            text = self._script(prompt, turn, sampling.seed or 0)
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        except ModelError:
            raise
        except Exception as error:  # a script is code of others
            raise ModelError(f"the script raised {type(error).__name__}: {error}") from error
        end = next((index for index, token in enumerate(ids) if token in sampling.stop_token_ids), None)
        ids = ids[: end + 1] if end is not None else [*ids, *sampling.stop_token_ids[:1]]
        if sampling.stop:
            stop_text = StopText(sampling.stop, self._decode)
            for length in range(1, len(ids) + 1):
                if (stop := stop_text.found(ids[:length])) is not None:
                    return ids[:length], stop
        return ids, None

    def _decode(self, ids: Sequence[int]) -> str:
        if self._tokenizer is None:
            raise ModelError("the scripted engine is not started")
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def _turn(self, session: str, prompt_ids: Sequence[int]) -> int:
        """Number of the session's turn; the opening prompt again is the same session starting over."""
        if not session:
            return 0
        prompt = hash(tuple(prompt_ids))
        opening, last = self._turns.pop(session, (prompt, -1))
        turn = 0 if prompt == opening else last + 1
        self._turns[session] = (opening, turn)
        if len(self._turns) > _MAX_SESSIONS:
            self._turns.popitem(last=False)
        return turn

    async def _take_time(self, session: str, tokens: int) -> int:
        """Wait as long as the tokens take; fewer of them when the session is aborted."""
        if not self._seconds_per_token:
            return tokens
        loop, aborted = asyncio.get_running_loop(), asyncio.Event()
        events = self._running.setdefault(session, set())
        events.add(aborted)
        started = loop.time()
        try:
            await asyncio.wait_for(aborted.wait(), tokens * self._seconds_per_token)
            return min(tokens - 1, int((loop.time() - started) / self._seconds_per_token))
        except TimeoutError:
            return tokens
        finally:
            events.discard(aborted)
            if not events:
                self._running.pop(session, None)


def _find(script: str) -> Script:
    module, _, name = script.partition(":")
    try:
        found = getattr(importlib.import_module(module), name) if name else None
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the script {script!r} can't be found: {error}") from error
    if not callable(found):
        raise ConfigError(f"the script {script!r} is no function: write it as module:function")
    function: Script = found
    return function
