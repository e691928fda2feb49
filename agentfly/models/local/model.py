"""A causal language model of transformers that runs on packed steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from agentfly.models.local.batch import StepBatch
from agentfly.models.local.cache import CacheShape


@dataclass(frozen=True)
class LocalModel:
    """A model whose attention is the engine's.

    Attributes:
        module: the transformers model, in evaluation mode.
        shape: of the cache that it needs.
        vocab_size: ids from 0 to below this are valid.
        max_context: most tokens of a sequence.
    """

    module: PreTrainedModel
    shape: CacheShape
    vocab_size: int
    max_context: int

    @property
    def parameters(self) -> int:
        """Number of its weights, tied ones once."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def on_cpu(self) -> bool:
        """Whether it runs on a CPU."""
        return self.shape.device.type == "cpu"

    def forward(self, step: StepBatch, wanted: torch.Tensor | None = None) -> torch.Tensor:
        """Run a step; its keys and values are in the cache afterwards.

        Args:
            step: the packed tokens.
            wanted: rows whose logits are needed; None for all.

        Returns:
            Logits `[wanted, vocabulary]`, of the last token of each row's chunk.
        """
        output = self.module(
            input_ids=step.ids,
            position_ids=step.position_ids,
            use_cache=False,
            logits_to_keep=torch.arange(step.rows, device=step.ids.device) if wanted is None else wanted,
            step=step,
        )
        logits: torch.Tensor = output.logits[0]
        return logits
