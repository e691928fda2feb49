"""`VllmEngine`: vLLM's asynchronous engine as a resource."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from agentfly.errors import ModelError, ResourceDied, first_line
from agentfly.models.engine import Completion, EngineInfo, Piece, Sampling
from agentfly.models.prompts import check_prompt
from agentfly.models.vllm.launch import launch
from agentfly.models.vllm.options import VllmOptions
from agentfly.models.vllm.translate import (
    VersionStart,
    completion_of,
    piece_of_output,
    sampling_params,
)
from agentfly.models.vllm.weights import check_weights, has_tied_head, saved_shapes, weights_file
from agentfly.resources.resource import Resource

if TYPE_CHECKING:
    from vllm import RequestOutput
    from vllm.lora.request import LoRARequest
    from vllm.v1.engine.async_llm import AsyncLLM

_ADAPTER = 1  # vLLM numbers adapters; there is one

# Seconds for vLLM's processes to end by themselves; those that are killed leave their shared memory behind.
_STOPPING = 20.0


class VllmEngine(Resource):
    """A model served by vLLM, on GPUs or, with vLLM's build for them, on CPUs.

    Token ids in and out; log-probabilities are of the distribution drawn from. Blocks of a prompt that were computed
    for an earlier call (the turns before, the chains of a group) are taken from vLLM's prefix cache.

    Args:
        path: folder in Hugging Face format.
        dtype: of the weights and the cache, `auto` as saved.
        max_context: a limit below the model's own.
        max_running: most calls that run together; further ones wait.
        gpu_memory: share of each GPU's memory for weights and cache.
        cpu_cache_gib: memory for keys and values on a CPU.
        threads: cores on a CPU; None leaves it to vLLM, which binds one thread to each.
        tensor_parallel: GPUs (on CPUs processes) that share each layer.
        executor: `mp` runs their workers on the host's machine with the host's GPUs (`num_gpus` of the spec); `ray`
            as Ray actors in a placement group that vLLM makes, which may span machines (leave `num_gpus` at 0);
            `uni` in one process; None takes `uni`, or vLLM's choice for several.
        adapter: folder of a LoRA adapter that all calls use; see `update_adapter`.
        max_lora_rank: of adapters.
        sleep_mode: lets `sleep` give the GPUs' memory back; not on CPUs.
        eager: without graphs and compilation; None does so on CPUs.
        weights_folder: where new weights are passed on to vLLM's processes; None takes memory. Workers on other
            machines need a folder that they share.
        more: further arguments of vLLM's `AsyncEngineArgs`, by its names.

    Raises:
        ConfigError: an option is out of range.
    """

    def __init__(
        self,
        path: str,
        *,
        dtype: str = "auto",
        max_context: int | None = None,
        max_running: int = 256,
        gpu_memory: float = 0.9,
        cpu_cache_gib: int = 4,
        threads: int | None = None,
        tensor_parallel: int = 1,
        executor: str | None = None,
        adapter: str | None = None,
        max_lora_rank: int = 16,
        sleep_mode: bool = False,
        eager: bool | None = None,
        weights_folder: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = VllmOptions(
            path=path,
            dtype=dtype,
            max_context=max_context,
            max_running=max_running,
            gpu_memory=gpu_memory,
            cpu_cache_gib=cpu_cache_gib,
            threads=threads,
            tensor_parallel=tensor_parallel,
            executor=executor,
            adapter=adapter,
            max_lora_rank=max_lora_rank,
            sleep_mode=sleep_mode,
            eager=eager,
            more=more or {},
        )
        self._weights_folder = weights_folder
        self._adapter = adapter
        self._llm: AsyncLLM | None = None
        self._version = 0
        self._held = False  # paused or asleep by the caller, not by an update
        self._broken: str | None = None
        self._changing = asyncio.Lock()
        self._ids = itertools.count()
        self._sessions: dict[str, set[str]] = {}
        self._running = 0
        self._counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Start vLLM's processes and load the model.

        Raises:
            ConfigError: vLLM is not installed, or `more` holds what it doesn't know.
            ModelError: vLLM can't serve this model.
        """
        self._saved = await asyncio.to_thread(saved_shapes, self._options.path)
        self._tied = has_tied_head(self._options.path)
        llm = await launch(self._options)
        try:
            await llm.update_weight_version("0")
            if self._adapter is not None:
                await llm.add_lora(_adapter_request(self._adapter))
        except BaseException:
            llm.shutdown()
            raise
        self._llm = llm

    async def stop(self) -> None:
        """End vLLM's processes; unfinished calls fail with `ModelError`."""
        if self._llm is not None:
            llm, self._llm = self._llm, None
            await asyncio.to_thread(llm.shutdown, _STOPPING)

    async def healthy(self) -> bool:
        """Whether vLLM's processes live and hold weights that are whole."""
        return self._llm is not None and not self._llm.errored and self._broken is None

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> Completion:
        """Sample one completion; see `Engine.generate`. A cancelled call is taken out of vLLM's batch."""
        last: RequestOutput | None = None
        identity = self._identity()
        outputs = self._outputs(identity, prompt_ids, sampling, session, priority, streamed=False)
        async with aclosing(outputs):
            async for output in outputs:
                last = output
        if last is None:
            raise ModelError("vLLM ended the call without an output")
        completion = completion_of(last, sampling.temperature == 0.0)
        self._counts["generated_tokens"] += len(completion.ids)
        return completion

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str = "", priority: int = 0
    ) -> AsyncIterator[Piece]:
        """See `Engine.stream`: a piece for each step, several in one when the caller is slow."""
        told = 0
        starts: list[VersionStart] | None = None
        identity = self._identity()
        outputs = self._outputs(identity, prompt_ids, sampling, session, priority, streamed=True)
        async with aclosing(outputs):
            async for output in outputs:
                starts = starts if starts is not None else self._starts(identity)
                if output.finished:
                    spans = output.outputs[0].weight_versions or ()
                    starts = [(span.version, span.start) for span in spans]
                piece = piece_of_output(output, told, starts, sampling.temperature == 0.0)
                told += len(piece.ids)
                self._counts["generated_tokens"] += len(piece.ids)
                yield piece

    async def abort(self, session: str) -> None:
        """End the session's running calls with what they have; what is cached of it goes when room is needed."""
        await self._engine().abort(list(self._sessions.get(session, ())))

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace all weights in place, between two steps.

        Running calls go on: their keys and values are computed anew under the new weights, and further tokens carry
        the new version. The prefix cache is dropped.

        Args:
            weights: Hugging Face name to numpy array or tensor; a tied output layer may be missing.
            version: of these weights.

        Raises:
            ModelError: names are unknown or missing, or shapes differ: then nothing was replaced. Or vLLM failed in
                it: then the engine isn't healthy any more.
        """
        self._engine()
        check_weights(weights, self._saved, tied=self._tied)
        # Once begun it is finished, whoever waits: half of the new weights would be no model.
        await asyncio.shield(asyncio.create_task(self._replace(weights, version)))

    async def update_adapter(self, path: str, version: int) -> None:
        """Put another LoRA adapter in the place of the one that calls use; running calls go on with it.

        Args:
            path: folder of the adapter, as PEFT saves it.
            version: that further tokens carry.

        Raises:
            ModelError: the engine was started without an adapter, or vLLM can't load this one.
        """
        llm = self._engine()
        if self._adapter is None:
            raise ModelError("the engine was started without an adapter: give its option adapter")
        async with self._changing:
            await llm.pause_generation(mode="keep", clear_cache=True)
            try:
                await llm.add_lora(_adapter_request(path, anew=True))
                await llm.update_weight_version(str(version))
            except Exception as error:
                raise ModelError(f"vLLM can't load the adapter {path!r}: {first_line(error)}") from error
            else:
                self._adapter, self._version = path, version
            finally:
                await self._go_on(llm)

    async def pause(self) -> None:
        """Sample nothing until `resume`; calls wait. Returns when no step is under way."""
        async with self._changing:
            self._held = True
            await self._engine().pause_generation(mode="keep", clear_cache=False)

    async def resume(self) -> None:
        """Go on after `pause`."""
        async with self._changing:
            self._held = False
            await self._engine().resume_generation()

    async def sleep(self, level: int = 1) -> None:
        """Give the GPUs' memory to somebody else until `wake`; calls wait, and are computed anew then.

        Args:
            level: 1 keeps the weights in the machine's memory, 2 drops them: `wake` must be followed by
                `update_weights`.

        Raises:
            ModelError: the engine was started without `sleep_mode`.
        """
        if not self._options.sleep_mode:
            raise ModelError("the engine was started without sleep_mode: give this option")
        async with self._changing:
            self._held = True
            await self._engine().sleep(level=level, mode="keep")

    async def wake(self) -> None:
        """Take the memory back and go on, after `sleep`."""
        async with self._changing:
            await self._engine().wake_up()
            self._held = False
            await self._engine().resume_generation()

    async def info(self) -> EngineInfo:
        """The longest context and the version of the weights."""
        return EngineInfo(self._engine().model_config.max_model_len, self._version)

    async def stats(self) -> dict[str, float]:
        """Tokens since start (prompt, cached, generated), calls, updates, and calls running or waiting now."""
        names = ("prompt_tokens", "cached_tokens", "generated_tokens", "calls", "updates")
        return {name: float(self._counts[name]) for name in names} | {"running": float(self._running)}

    async def _outputs(
        self,
        identity: str,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        session: str,
        priority: int,
        *,
        streamed: bool,
    ) -> AsyncGenerator[RequestOutput]:
        """A request's outputs; who leaves before the last takes it out of vLLM's batch."""
        llm = self._engine()
        config = llm.model_config
        tokens = check_prompt(prompt_ids, config.get_vocab_size(), config.max_model_len)
        params = sampling_params(sampling, streamed=streamed)
        adapter = None if self._adapter is None else _adapter_request(self._adapter)
        self._sessions.setdefault(session, set()).add(identity)
        self._running += 1
        counted = False
        outputs = llm.generate({"prompt_token_ids": tokens}, params, identity, lora_request=adapter, priority=priority)
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    if not counted:
                        counted = True
                        self._count(len(tokens), output.num_cached_tokens or 0)
                    yield output
        except Exception as error:
            if llm.errored:  # no fault of the call: its rollout starts over on another engine
                raise ResourceDied(f"vLLM's processes have ended: {first_line(error)}") from error
            raise ModelError(f"vLLM failed: {first_line(error.__cause__ or error)}") from error
        finally:
            self._running -= 1
            self._sessions[session].discard(identity)
            if not self._sessions[session]:
                del self._sessions[session]

    def _count(self, prompt: int, cached: int) -> None:
        self._counts.update(calls=1, prompt_tokens=prompt, cached_tokens=cached)

    def _starts(self, identity: str) -> list[VersionStart]:
        """Where versions begin in a running request: the list that vLLM goes on extending.

        Only the last output tells it in public; told by the time of their arrival tokens could be given to the
        version that came just after them.
        """
        states = self._engine().output_processor.request_states.values()
        return next((s.weight_version_starts for s in states if s.external_req_id == identity), [])

    async def _replace(self, weights: Mapping[str, Any], version: int) -> None:
        async with self._changing:
            llm = self._engine()
            file = weights_file(weights, self._weights_folder)
            path = await asyncio.to_thread(file.__enter__)
            try:
                await llm.pause_generation(mode="keep", clear_cache=True)
                try:
                    await llm.collective_rpc("replace_weights", args=(path,))
                    await llm.update_weight_version(str(version))
                finally:
                    await self._go_on(llm)
            except Exception as error:
                self._broken = first_line(error)
                raise ModelError(f"vLLM failed to replace its weights: {self._broken}") from error
            finally:
                await asyncio.to_thread(file.__exit__, None, None, None)
            self._version = version
            self._counts["updates"] += 1

    async def _go_on(self, llm: AsyncLLM) -> None:
        if not self._held:
            await llm.resume_generation()

    def _identity(self) -> str:
        return f"call-{next(self._ids)}"

    def _engine(self) -> AsyncLLM:
        if self._llm is None:
            raise ModelError(f"the engine of {self._options.path!r} isn't running: start it first")
        if self._broken is not None:
            raise ModelError(f"the engine's weights are not whole, since an update failed: {self._broken}")
        return self._llm


def _adapter_request(path: str, *, anew: bool = False) -> LoRARequest:
    from vllm.lora.request import LoRARequest

    return LoRARequest("adapter", _ADAPTER, path, load_inplace=anew)
