"""Lets verl run where there is no accelerator. verl loads it in every process (`VERL_USE_EXTERNAL_MODULES`).

A platform, a rollout replica, and three functions of verl's replaced that assume CUDA; see `patch`.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import psutil
import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

os.environ.setdefault("VERL_PLATFORM", "cpu")
os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")  # by which verl looks up its FSDP engines


def device_module() -> types.ModuleType:
    """What stands in for `torch.cuda`: nothing is available, everything may be called."""
    module = types.ModuleType("no_accelerator")
    answers: dict[str, Any] = {"is_available": False, "device_count": 1, "current_device": "cpu"}
    answers |= {"get_device_name": "CPU", "set_device": None, "empty_cache": None, "synchronize": None}
    answers |= dict.fromkeys(["manual_seed", "manual_seed_all", "ipc_collect", "reset_peak_memory_stats"])
    answers |= dict.fromkeys(["reset_accumulated_memory_stats", "set_per_process_memory_fraction"])
    answers |= dict.fromkeys(["memory_allocated", "memory_reserved"], 0)
    answers |= dict.fromkeys(["max_memory_allocated", "max_memory_reserved"], 0)
    functions: dict[str, Any] = {name: lambda *_, answer=answer, **__: answer for name, answer in answers.items()}
    functions["mem_get_info"] = lambda *_: (psutil.virtual_memory().available, psutil.virtual_memory().total)
    functions["get_rng_state"] = lambda *_: torch.get_rng_state()
    functions["set_rng_state"] = lambda state, *_: torch.set_rng_state(state)
    functions["stream"] = lambda *_: nullcontext()
    module.__dict__.update(functions)
    return module


_DEVICE = device_module()


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _DEVICE)

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: Any) -> None:
        pass

    def synchronize(self, device_index: Any = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: Any) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"  # logical ones: ray.init(num_gpus=1)

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def patch() -> None:
    """Replace what assumes CUDA: the process group, pinned memory of reference models, attention of value heads."""
    import verl.utils.distributed as distributed
    import verl.utils.fsdp_utils as fsdp
    import verl.utils.model as model

    def process_group(timeout_second: float | None = None, backend: str | None = None) -> None:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(
                backend="gloo",
                rank=int(os.environ.get("RANK", 0)),
                world_size=int(os.environ.get("WORLD_SIZE", 1)),
                timeout=timedelta(seconds=timeout_second) if timeout_second else None,
                init_method=os.environ.get("DIST_INIT_METHOD"),
            )

    def value_head(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path, dtype=torch_dtype, config=model_config, attn_implementation="sdpa"
        )

    offload = fsdp.CPUOffloadPolicy
    distributed.initialize_global_process_group_ray = process_group
    fsdp.CPUOffloadPolicy = lambda pin_memory=True: offload(pin_memory=False)
    model.load_valuehead_model = value_head


def register_replica() -> None:
    """Make the rollout `hf_cpu` known."""
    import verl.workers.rollout.base as base
    from cpu_replica import load_replica
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base._ROLLOUT_REGISTRY["hf_cpu", "async"] = "cpu_replica.ServerAdapter"
    RolloutReplicaRegistry.register("hf_cpu", load_replica)


patch()
register_replica()
