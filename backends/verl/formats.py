"""The chat format of the model that verl trains, from the tokenizer that verl has loaded."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentfly.rollout.chat_format import ChatFormat


def chat_format(tokenizer: Any, *, family: str | None, options: Mapping[str, Any], custom_template: bool) -> ChatFormat:
    """The format of verl's tokenizer.

    Args:
        tokenizer: of transformers, as verl loaded it.
        family: a name that the renderers library knows; None finds out.
        options: of the family's renderer or of the chat template.
        custom_template: verl has replaced the tokenizer's chat template, so the folder's own doesn't count.

    Raises:
        ConfigError: see `ChatFormat.load`.
    """
    folder = Path(str(tokenizer.name_or_path))
    if folder.is_dir() and not custom_template:
        return ChatFormat.load(str(folder), family=family, options=options)
    with TemporaryDirectory(prefix="agentfly-tokenizer-") as scratch:
        # Below the published name, which tells the family.
        copy = Path(scratch, *folder.parts[-2:]) if not folder.is_absolute() else Path(scratch, folder.name)
        tokenizer.save_pretrained(copy)
        if (folder / "generation_config.json").is_file():
            shutil.copy(folder / "generation_config.json", copy)
        return ChatFormat.load(str(copy), family=family, options=options)
