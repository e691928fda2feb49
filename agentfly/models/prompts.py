"""What every token engine asks of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly.errors import ModelError


def check_prompt(prompt_ids: Sequence[int], vocab_size: int, max_context: int) -> list[int]:
    """The prompt as a list.

    Raises:
        ModelError: it is empty, has ids outside the vocabulary, or leaves no room in the context.
    """
    tokens = [int(token) for token in prompt_ids]
    if not tokens:
        raise ModelError("the prompt is empty: send at least one token")
    if len(tokens) >= max_context:
        raise ModelError(
            f"the prompt has {len(tokens)} tokens, the context takes {max_context}: no room for a completion"
        )
    if min(tokens) < 0 or max(tokens) >= vocab_size:
        place = next(index for index, token in enumerate(tokens) if not 0 <= token < vocab_size)
        raise ModelError(f"prompt token {tokens[place]} at position {place} is outside the vocabulary of {vocab_size}")
    return tokens
