"""Seeds that depend on what they are for, and on nothing else."""

from __future__ import annotations

from hashlib import blake2b


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from a path of names and numbers, the same in every process and run."""
    digest = blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
