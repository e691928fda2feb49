"""A rollout replica of verl's that samples with transformers on the CPU, and the adapter that brings it weights."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
import torch


class CpuServer:
    """What verl asks of a rollout server: tokens in, tokens out.

    Args:
        model_path: in Hugging Face form.
        max_tokens: of a completion for which none are given.
        seed: of the sampling.
    """

    def __init__(self, model_path: str, max_tokens: int = 16, seed: int = 0) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        ends = self.model.generation_config.eos_token_id
        self.ends = set(ends) if isinstance(ends, list) else {ends}
        self.generator = torch.Generator().manual_seed(seed)
        self.max_tokens = max_tokens
        self.global_steps: int | None = None
        self.updates = 0
        self.lock = asyncio.Lock()

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: Any = None,
        video_data: Any = None,
        **more: Any,
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        async with self.lock:
            ids, logprobs = await asyncio.to_thread(self._sample, prompt_ids, sampling_params)
        return TokenOutput(
            token_ids=ids,
            log_probs=logprobs if sampling_params.get("logprobs") else None,
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": self.global_steps},
        )

    @torch.no_grad()
    def _sample(self, prompt_ids: list[int], params: dict[str, Any]) -> tuple[list[int], list[float]]:
        ends = self.ends | set(params.get("stop_token_ids") or ())
        temperature = float(params.get("temperature", 1.0))
        ids: list[int] = []
        logprobs: list[float] = []
        cache, step = None, torch.tensor([list(prompt_ids)])
        for _ in range(params.get("max_tokens") or self.max_tokens):
            output = self.model(input_ids=step, past_key_values=cache, use_cache=True)
            cache, logits = output.past_key_values, output.logits[0, -1].float()
            scores = (logits / temperature if temperature > 0 else logits).log_softmax(-1)
            drawn = torch.multinomial(scores.exp(), 1, generator=self.generator)
            token = int(drawn) if temperature > 0 else int(scores.argmax())
            ids.append(token)
            logprobs.append(float(scores[token]))
            if token in ends:
                break
            step = torch.tensor([[token]])
        return ids, logprobs

    async def load_weights(self, named: list[tuple[str, torch.Tensor]], global_steps: int | None = None) -> float:
        """Take weights; returns the sum of their absolute values."""
        missing, unexpected = self.model.load_state_dict(dict(named), strict=False)
        tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
        assert set(missing) <= tied and not unexpected, (missing, unexpected)
        self.global_steps, self.updates = global_steps, self.updates + 1
        return float(sum(weights.double().abs().sum() for weights in self.model.parameters()))

    async def set_global_steps(self, global_steps: int) -> None:
        self.global_steps = global_steps

    async def wake_up(self, tags: Any = None) -> None: ...
    async def sleep(self) -> None: ...
    async def clear_kv_cache(self) -> None: ...
    async def release_kv_cache(self) -> None: ...
    async def resume_kv_cache(self) -> None: ...
    async def abort_all_requests(self, reject_request: bool = False) -> None: ...
    async def resume_generation(self) -> None: ...
    async def start_profile(self, **kwargs: Any) -> None: ...
    async def stop_profile(self) -> None: ...


class BatchedServer(CpuServer):
    """The same on AgentFly's embedded engine, which samples many completions at once: for runs of many steps."""

    def __init__(self, model_path: str, max_tokens: int = 16, seed: int = 0) -> None:
        from agentfly.models.local.engine import LocalEngine

        self.engine = LocalEngine(model_path)
        self.started: asyncio.Task[None] | None = None
        self.max_tokens = max_tokens
        self.global_steps: int | None = None

    async def _engine(self) -> Any:
        if self.started is None:
            self.started = asyncio.ensure_future(self.engine.start())
        await self.started
        return self.engine

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, *_: Any, **more: Any
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        from agentfly.models.engine import Sampling

        engine = await self._engine()
        sampling = Sampling(
            max_tokens=sampling_params.get("max_tokens") or self.max_tokens,
            temperature=float(sampling_params.get("temperature", 1.0)),
            stop_token_ids=tuple(sampling_params.get("stop_token_ids") or ()),
        )
        drawn = await engine.generate(prompt_ids, sampling, session=request_id)
        return TokenOutput(
            token_ids=list(drawn.ids),
            log_probs=list(drawn.logprobs),
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": self.global_steps},
        )

    async def load_weights(self, named: list[tuple[str, torch.Tensor]], global_steps: int | None = None) -> float:
        engine = await self._engine()
        self.global_steps = global_steps
        await engine.update_weights({name: tensor.numpy() for name, tensor in named}, global_steps or 0)
        return float("nan")


def load_replica() -> type:
    """The replica's class; verl asks for it late, since its own base class is heavy."""
    from verl.workers.rollout.replica import RolloutReplica

    class CpuReplica(RolloutReplica):
        def rollout_worker_use_gpu(self) -> bool:
            return False

        async def launch_servers(self) -> None:
            path = self.model_config["path"] if isinstance(self.model_config, dict) else self.model_config.path
            options = {"name": _server_name(self.replica_rank), "num_cpus": 0, "max_concurrency": 64}
            server = (
                ray.remote(CpuServer)
                .options(**options)
                .remote(path, max_tokens=self.config.response_length, seed=self.config.seed)
            )
            self.servers, self._server_handle = [server], server
            self._server_address = f"ray://hf_cpu/{self.replica_rank}"

    return CpuReplica


def _make_adapter() -> type:
    from verl.workers.rollout.base import BaseRollout

    class ServerAdapter(BaseRollout):
        """Lives beside the trainer and sends its weights to the server through Ray's object store."""

        def __init__(
            self, config: Any, model_config: Any, device_mesh: Any, *_: Any, replica_rank: int = -1, **__: Any
        ):
            super().__init__(config, model_config, device_mesh)
            world = self.config.tensor_model_parallel_size * self.config.data_parallel_size
            rank = int(os.environ["RANK"])
            self.replica_rank = rank // world if replica_rank == -1 else replica_rank
            self.leads = rank % world == 0

        async def resume(self, tags: Any) -> None: ...
        async def release(self) -> None: ...

        async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
            named = [(name, tensor.detach().to("cpu", torch.float32).contiguous().clone()) for name, tensor in weights]
            if self.leads:
                server = ray.get_actor(_server_name(self.replica_rank))
                total = await server.load_weights.remote(named, global_steps)
                sent = float(sum(tensor.double().abs().sum() for _, tensor in named))
                print(f"WEIGHTS step={global_steps} sent={sent:.9f} served={total:.9f}", flush=True)

    return ServerAdapter


def __getattr__(name: str) -> Any:
    if name == "ServerAdapter":
        globals()[name] = _make_adapter()
        return globals()[name]
    raise AttributeError(name)


def _server_name(rank: int) -> str:
    return f"hf_cpu_server_{rank}_0"
