"""New weights on their way to vLLM's workers: checked against the model's folder, written where all can read them."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentfly.errors import ModelError

Shapes = Mapping[str, tuple[int, ...]]

# Written in memory where there is such a place.
_IN_MEMORY = Path("/dev/shm")


def saved_shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights in a model's folder; empty when it isn't saved as safetensors."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        with safe_open(str(file), framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                shapes[name] = tuple(tensors.get_slice(name).get_shape())
    return shapes


def has_tied_head(path: str) -> bool:
    """Whether the model's output layer is its embedding, by its `config.json`."""
    file = Path(path) / "config.json"
    return file.is_file() and bool(json.loads(file.read_text(encoding="utf-8")).get("tie_word_embeddings"))


def check_weights(weights: Mapping[str, Any], saved: Shapes, *, tied: bool) -> None:
    """Compare what is sent with what the model was loaded from.

    Args:
        weights: name to array.
        saved: of the model's folder; when it is empty nothing is checked.
        tied: `lm_head.weight` may come too, or be missing.

    Raises:
        ModelError: names are unknown or missing, or shapes differ.
    """
    if not saved:
        return
    optional = {"lm_head.weight"} if tied else set()
    if unknown := sorted(set(weights) - set(saved) - optional):
        raise ModelError(f"the model has no weight {unknown[0]!r}{_more(unknown)}: send its own names")
    if missing := sorted(set(saved) - set(weights) - optional):
        raise ModelError(f"weight {missing[0]!r} is missing{_more(missing)}: send all weights")
    wrong = [name for name, value in weights.items() if name in saved and tuple(value.shape) != saved[name]]
    if wrong:
        name = wrong[0]
        raise ModelError(
            f"weight {name!r} has shape {tuple(weights[name].shape)}, the model's is {saved[name]}{_more(wrong)}"
        )


@contextmanager
def weights_file(weights: Mapping[str, Any], folder: str | None) -> Iterator[str]:
    """A safetensors file of the weights, for the block.

    Args:
        weights: name to numpy array or tensor.
        folder: where; None takes memory (`/dev/shm`) where the machine has it. Workers on other machines need a
            shared folder.
    """
    from safetensors.torch import save_file

    where = folder or (str(_IN_MEMORY) if _IN_MEMORY.is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="agentfly-weights-", dir=where) as made:
        file = Path(made) / "weights.safetensors"
        save_file({name: _tensor(value) for name, value in weights.items()}, file)
        yield str(file)


def _tensor(value: Any) -> Any:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu().contiguous()
    with warnings.catch_warnings():
        # Arrays out of shared memory are read-only, which torch warns of; they are only read.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(np.ascontiguousarray(value))


def _more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
