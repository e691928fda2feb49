"""Loading a tokenizer, and the thin layer over it through which all text passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentfly.errors import ConfigError


class FolderTokenizer:
    """A Hugging Face tokenizer, called straight: exact texts, and a fraction of the wrapper's time.

    It gives what the `renderers` library asks of a tokenizer, character offsets left out.

    Args:
        tokenizer: of transformers.
        name: of the published model where it is known, else the folder.

    Attributes:
        name_or_path, eos_token_id, unk_token_id, chat_template, added_tokens: as in transformers.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer if tokenizer.is_fast else None
        self.name_or_path = name
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self.unk_token_id: int | None = tokenizer.unk_token_id
        self.chat_template: Any = tokenizer.chat_template
        self.added_tokens: Mapping[int, Any] = tokenizer.added_tokens_decoder

    def __len__(self) -> int:
        return len(self._tokenizer)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids; special tokens in the text are recognised."""
        if self._backend is not None:
            return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False, **ignored: Any) -> str:
        """Text, with nothing cleaned up."""
        if self._backend is not None:
            return str(self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens))
        return str(
            self._tokenizer.decode(
                list(token_ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
            )
        )

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Id of a token by its text; that of the unknown token, or None, when there is none."""
        return self._tokenizer.convert_tokens_to_ids(tokens)

    def apply_chat_template(self, *arguments: Any, **options: Any) -> Any:
        """As in transformers."""
        return self._tokenizer.apply_chat_template(*arguments, **options)


def load_tokenizer(path: str) -> FolderTokenizer:
    """The tokenizer of a folder in Hugging Face form.

    Raises:
        ConfigError: there is no folder, no tokenizer in it, or transformers isn't installed.
    """
    if not Path(path).is_dir():
        raise ConfigError(f"no model folder at {path}: give the path of a local folder in Hugging Face form")
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError("tokenizers are loaded by transformers: pip install agentfly-rl[native]") from error
    try:
        loaded = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # transformers raises what its parts raise
        raise ConfigError(f"no tokenizer can be loaded from {path}: {' '.join(str(error).split())}") from error
    return FolderTokenizer(loaded, published_name(path) or path)


def published_name(path: str) -> str | None:
    """The published model that a folder holds, when `renderers` knows it.

    Known by the folder's name (`.../Qwen/Qwen3-4B`), or the hub cache's (`models--Qwen--Qwen3-4B`).
    """
    from renderers.base import MODEL_RENDERER_MAP

    parts = Path(path).parts
    names = [part.removeprefix("models--").replace("--", "/") for part in parts if part.startswith("models--")]
    names.append("/".join(parts[-2:]))
    return next((name for name in names if name in MODEL_RENDERER_MAP), None)
