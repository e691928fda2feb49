"""verl's sampling parameters in AgentFly's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentfly.models.engine import Sampling


def sampling_of(params: Mapping[str, Any], max_tokens: int) -> Sampling:
    """What the agent loop must know of verl's parameters; the server gets them whole.

    Args:
        params: as verl hands them to an agent loop; a `top_k` of -1 is none.
        max_tokens: of one completion.
    """
    limit = params.get("max_tokens") or params.get("max_new_tokens") or max_tokens
    return Sampling(
        max_tokens=min(int(limit), max_tokens),
        temperature=float(params.get("temperature", 1.0)),
        top_p=float(params.get("top_p", 1.0)),
        top_k=max(0, int(params.get("top_k", 0))),
        stop_token_ids=tuple(params.get("stop_token_ids") or ()),
    )


def is_validation(params: Mapping[str, Any], rollout: Any) -> bool:
    """Whether these are the parameters of verl's validation: it doesn't tell in any other way.

    False where validation samples as training does.
    """
    names = ("temperature", "top_p", "top_k")
    given = [params.get(name) for name in names]
    validation = [rollout.val_kwargs.get(name) for name in names]
    training = [rollout.get(name) for name in names]
    return given == validation and validation != training
