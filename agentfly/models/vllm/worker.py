"""What runs inside vLLM's workers; named to vLLM as an extension of its worker class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

EXTENSION = "agentfly.models.vllm.worker.WeightUpdates"


class WeightUpdates:
    """Methods that vLLM's workers get in addition, called through `collective_rpc`."""

    model_runner: Any  # the worker's own

    def replace_weights(self, file: str) -> None:
        """Load all weights of the model anew, in place.

        vLLM's layer by layer reload, since loading into a running model directly fails where its linear layers have
        been repacked and their plain weights freed.

        Args:
            file: safetensors with Hugging Face names; each worker takes its shards of it.
        """
        self.model_runner.reload_weights(weights_iterator=_tensors(file))
        repack_tied_head(self.model_runner.get_model())


def repack_tied_head(model: Any) -> None:
    """Make a tied output layer use the new embedding.

    On CPUs vLLM 0.32 keeps a repacked copy of it, which a reload passes over silently: the model would go on with
    the old output layer.
    """
    head = getattr(model, "lm_head", None)
    head = getattr(head, "base_layer", head)
    embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
    embedding = getattr(embedding, "base_layer", embedding)
    config = getattr(model, "config", None)
    if head is None or embedding is None or not getattr(config, "tie_word_embeddings", False):
        return
    if hasattr(head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        head.weight = embedding.weight
        dispatch_cpu_unquantized_gemm(head, remove_weight=False)


def _tensors(file: str) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - it is no mapping
            yield name, tensors.get_tensor(name)
