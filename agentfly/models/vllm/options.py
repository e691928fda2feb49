"""Options of the engine, and what they are in vLLM's terms."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly.errors import ConfigError
from agentfly.models.vllm.worker import EXTENSION

if TYPE_CHECKING:
    from vllm.engine.arg_utils import AsyncEngineArgs

EXECUTORS = ("mp", "ray", "uni")

# vLLM's CPU kernels take blocks of multiples of 32 tokens; its default of 128 there leaves short prompts uncached.
_CPU_BLOCK = 32


@dataclass(frozen=True)
class VllmOptions:
    """See `VllmEngine`, whose arguments these are."""

    path: str
    dtype: str = "auto"
    max_context: int | None = None
    max_running: int = 256
    gpu_memory: float = 0.9
    cpu_cache_gib: int = 4
    threads: int | None = None
    tensor_parallel: int = 1
    executor: str | None = None
    adapter: str | None = None
    max_lora_rank: int = 16
    sleep_mode: bool = False
    eager: bool | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("max_context", "max_running", "cpu_cache_gib", "threads", "tensor_parallel", "max_lora_rank"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"engine option {name} is {value}: it must be at least 1")
        if not 0.0 < self.gpu_memory <= 1.0:
            raise ConfigError(f"engine option gpu_memory is {self.gpu_memory}: it must be above 0 and at most 1")
        if self.executor is not None and self.executor not in EXECUTORS:
            raise ConfigError(f"engine option executor is {self.executor!r}: it must be one of {', '.join(EXECUTORS)}")
        if self.executor == "uni" and self.tensor_parallel > 1:
            raise ConfigError(f"engine option executor 'uni' is one process, tensor_parallel is {self.tensor_parallel}")

    def environment(self) -> dict[str, str]:
        """What vLLM reads from the environment; what the user has set there already stays."""
        wanted = {
            "VLLM_CPU_KVCACHE_SPACE": str(self.cpu_cache_gib),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
        }
        if self.threads is not None:
            wanted |= {"OMP_NUM_THREADS": str(self.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        # Ray sets it to 1 in every actor that asks for no CPUs; that is no user's wish.
        own = {name for name in os.environ if name != "OMP_NUM_THREADS"}
        return {name: value for name, value in wanted.items() if name not in own}

    def engine_args(self) -> AsyncEngineArgs:
        """Arguments of vLLM's engine.

        Raises:
            ConfigError: `more` holds what vLLM doesn't know, or what is set here.
        """
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform

        on_cpu = current_platform.is_cpu()
        given: dict[str, Any] = {
            "model": self.path,
            "dtype": self.dtype,
            "max_model_len": self.max_context,
            "max_num_seqs": self.max_running,
            "gpu_memory_utilization": self.gpu_memory,
            "tensor_parallel_size": self.tensor_parallel,
            "distributed_executor_backend": self.executor or ("uni" if self.tensor_parallel == 1 else None),
            "enable_prefix_caching": True,
            "enforce_eager": on_cpu if self.eager is None else self.eager,
            "enable_sleep_mode": self.sleep_mode,
            "enable_lora": self.adapter is not None,
            "max_lora_rank": self.max_lora_rank,
            "scheduling_policy": "priority",
            "logprobs_mode": "processed_logprobs",
            "worker_extension_cls": EXTENSION,
            "skip_tokenizer_init": not _has_tokenizer(self.path),
            "disable_log_stats": True,
        }
        if on_cpu:
            given["block_size"] = _CPU_BLOCK
        if twice := sorted(set(given) & set(self.more) - {"block_size", "enable_prefix_caching"}):
            raise ConfigError(f"engine option more holds {twice[0]!r}, which the engine's own options say")
        try:
            return AsyncEngineArgs(**(given | dict(self.more)))
        except TypeError as error:
            raise ConfigError(f"engine option more: {error}") from error


def _has_tokenizer(path: str) -> bool:
    """A folder may be without one; a name on a hub has one."""
    return not Path(path).is_dir() or (Path(path) / "tokenizer_config.json").is_file()
