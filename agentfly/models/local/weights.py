"""Replaces a model's weights in place."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from agentfly.errors import ModelError


class WeightTable:
    """The names under which a model's weights can be replaced.

    Names that share storage (a tied output layer and its embedding) are one weight: an update may
    bring any of them. Persistent buffers may come too.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._tensors: dict[str, torch.Tensor] = dict(module.state_dict())
        needed: dict[int, list[str]] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            needed.setdefault(parameter.data_ptr(), []).append(name)
        self._needed = list(needed.values())

    @torch.no_grad()
    def replace(self, weights: Mapping[str, Any]) -> None:
        """Copy new values in; all is checked before anything is written.

        Args:
            weights: name to numpy array or tensor, of the model's shapes; types are converted.

        Raises:
            ModelError: names are unknown or missing, or shapes differ.
        """
        self._check_names(weights)
        tensors = {name: _as_tensor(name, value) for name, value in weights.items()}
        wrong = [name for name, tensor in tensors.items() if tensor.shape != self._tensors[name].shape]
        if wrong:
            name = wrong[0]
            raise ModelError(
                f"weight {name!r} has shape {tuple(tensors[name].shape)}, "
                f"the model's is {tuple(self._tensors[name].shape)}{_more(wrong)}"
            )
        for name, tensor in tensors.items():
            self._tensors[name].copy_(tensor)

    def _check_names(self, weights: Mapping[str, Any]) -> None:
        unknown = sorted(set(weights) - set(self._tensors))
        if unknown:
            raise ModelError(f"the model has no weight {unknown[0]!r}{_more(unknown)}: send its own names")
        missing = [names[0] for names in self._needed if not any(name in weights for name in names)]
        if missing:
            raise ModelError(f"weight {missing[0]!r} is missing{_more(missing)}: send all weights")


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _as_tensor(name: str, value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    array = np.ascontiguousarray(value)
    if array.dtype.kind not in "fiu":
        raise ModelError(f"weight {name!r} is no array of numbers: its type is {array.dtype.name}")
    with warnings.catch_warnings():
        # Arrays out of shared memory are read-only, which torch warns of; they are only read.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
