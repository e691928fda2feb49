"""Text of token ids, for engines that must look into what they sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentfly.errors import ModelError
from agentfly.models.stopping import Decode


def load_decoder(path: str) -> Decode:
    """The decoder of a Hugging Face folder: special tokens kept, ids that it doesn't know left out.

    Raises:
        ModelError: the folder has no `tokenizer.json`.
    """
    from tokenizers import Tokenizer

    file = Path(path) / "tokenizer.json"
    if not file.is_file():
        raise ModelError(f"stop texts need a tokenizer, and there is none at {file}: stop by token ids")
    tokenizer = Tokenizer.from_file(str(file))

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    return decode
