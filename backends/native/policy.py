"""The policy: a causal language model that scores what was sampled from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from agentfly.backends.native.batching import MicroBatch
from agentfly.backends.native.logprobs import TokenScores, score_tokens

from agentfly.errors import ConfigError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Policy:
    """A model and the temperature that it is sampled at.

    The model stays in evaluation mode: dropout would make its log-probabilities others than the sampler's.

    Args:
        model: a causal language model of transformers.
        temperature: of the sampler; log-probabilities are those of the distribution that was drawn from.
        max_logits: most logits held at once.
    """

    def __init__(self, model: PreTrainedModel, *, temperature: float = 1.0, max_logits: int = 1 << 26) -> None:
        self.model = model
        self.model.train(False)
        self._temperature = temperature
        self._max_logits = max_logits
        self._head = _separable_head(model)

    @classmethod
    def load(cls, path: str | Path, *, temperature: float = 1.0, device: str = "auto") -> Policy:
        """Load a model folder in Hugging Face format, in float32.

        Args:
            path: a local folder.
            temperature: of the sampler.
            device: `cpu`, `cuda`, or `auto` for the GPU where there is one.

        Raises:
            ConfigError: there is no such folder, or no model in it that transformers can load.
        """
        from transformers import AutoModelForCausalLM

        if not Path(path).is_dir():
            raise ConfigError(f"no model folder at {path}: give a local folder in Hugging Face format")
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                path, dtype=torch.float32, local_files_only=True
            )
        except Exception as error:  # transformers, safetensors and torch raise what they like
            raise ConfigError(f"no causal language model can be loaded from {path}: {first_line(error)}") from error
        module = cast("torch.nn.Module", model)
        module.to(torch.device(device))
        return cls(model, temperature=temperature)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def score(self, batch: MicroBatch) -> TokenScores:
        """Scores of the batch's sampled tokens, in its order; the batch must be on the policy's device."""
        if self._head is not None:
            hidden = self.model.base_model(input_ids=batch.ids, use_cache=False).last_hidden_state
            head: Any = self._head
        else:
            hidden = self.model(input_ids=batch.ids, use_cache=False).logits
            head = _identity
        return score_tokens(
            hidden[batch.rows, batch.columns],
            batch.targets,
            head,
            vocab_size=_vocab_size(self.model),
            temperature=self._temperature,
            max_logits=self._max_logits,
        )

    def weights(self) -> dict[str, npt.NDArray[Any]]:
        """Copies of all weights by their Hugging Face names; a weight that two names share comes once."""
        seen: set[int] = set()
        weights = {}
        for name, tensor in self.model.state_dict().items():
            if tensor.data_ptr() in seen and tensor.numel():
                continue
            seen.add(tensor.data_ptr())
            tensor = tensor.detach().to("cpu")
            # numpy has no bfloat16.
            weights[name] = np.array((tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy())
        return weights


def _identity(logits: torch.Tensor) -> torch.Tensor:
    return logits


def _vocab_size(model: PreTrainedModel) -> int:
    return int(model.config.get_text_config().vocab_size)


def _separable_head(model: PreTrainedModel) -> torch.nn.Module | None:
    """The output layer, if it alone makes the logits; None for a model that scales or caps them afterwards.

    Computing logits only where they are needed is then out of reach, so all of them are made.
    """
    head: object = model.get_output_embeddings()
    if not isinstance(head, torch.nn.Module):
        return None
    ids = torch.arange(min(4, _vocab_size(model)), device=next(model.parameters()).device)[None]
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        apart = head(model.base_model(input_ids=ids, use_cache=False).last_hidden_state)
    return head if torch.allclose(whole, apart, rtol=1e-4, atol=1e-5) else None
