"""Keys and values of the running sequences, in one dense tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_ROW_STEP = 8
_TOKEN_STEP = 64


@dataclass(frozen=True)
class CacheShape:
    """What one token takes: `layers` times keys and values of `[kv_heads, head_dim]`."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the keys and values of one token, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class KVCache:
    """Rows of keys and values, right-padded; grows in steps.

    Attributes:
        data: `[layers, 2, rows, kv_heads, capacity, head_dim]`; index 1 is 0 for keys, 1 for values.
            What stands beyond a row's length is finite and has no meaning.
    """

    def __init__(self, shape: CacheShape) -> None:
        self._shape = shape
        self.data = self._zeros(0, 0)

    @property
    def bytes(self) -> int:
        """Size of the tensor."""
        return self.data.numel() * self.data.element_size()

    @property
    def capacity(self) -> int:
        """Tokens that a row can hold now."""
        return self.data.shape[4]

    def _zeros(self, rows: int, capacity: int) -> torch.Tensor:
        shape = self._shape
        # Zeros, not `empty`: a masked NaN still poisons the sum over the values.
        return torch.zeros(
            (shape.layers, 2, rows, shape.kv_heads, capacity, shape.head_dim), dtype=shape.dtype, device=shape.device
        )

    def reserve(self, rows: int, length: int) -> None:
        """Make room for `rows` rows of `length` tokens; what is there stays."""
        old = self.data
        old_rows, old_capacity = old.shape[2], old.shape[4]
        if rows <= old_rows and length <= old_capacity:
            return
        # By half at least, so that the copies stay a constant share of the work.
        new_rows = old_rows if rows <= old_rows else _round_up(max(rows, old_rows * 3 // 2), _ROW_STEP)
        new_capacity = (
            old_capacity if length <= old_capacity else _round_up(max(length, old_capacity * 3 // 2), _TOKEN_STEP)
        )
        self.data = self._zeros(new_rows, new_capacity)
        self.data[:, :, :old_rows, :, :old_capacity] = old

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row to another."""
        self.data[:, :, target, :, :length] = self.data[:, :, source, :, :length]

    def save(self, row: int, length: int) -> torch.Tensor:
        """The first `length` tokens of a row as a tensor of their own, `[layers, 2, kv_heads, length, head_dim]`."""
        return self.data[:, :, row, :, :length].clone()

    def load(self, row: int, block: torch.Tensor, length: int) -> None:
        """Put the first `length` tokens of a saved block into a row."""
        self.data[:, :, row, :, :length] = block[:, :, :, :length]

    def clear(self, above: int = 0) -> None:
        """Give the memory back when it is more than `above` bytes; nothing may be running."""
        if self.bytes > above:
            self.data = self._zeros(0, 0)


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
