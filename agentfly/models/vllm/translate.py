"""Between AgentFly's calls and vLLM's requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agentfly.errors import ModelError, first_line
from agentfly.models.engine import Completion, FinishReason, Piece, Sampling

if TYPE_CHECKING:
    from vllm import SamplingParams

# A version's label and the index of the first token that it drew.
VersionStart = tuple[str, int]


def sampling_params(sampling: Sampling, *, streamed: bool) -> SamplingParams:
    """A call's sampling in vLLM's terms; what ends it is what the call says, never the model's own end tokens.

    Raises:
        ModelError: a parameter is out of range.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if "" in sampling.stop:
        raise ModelError("sampling parameter stop holds an empty text, which would end every completion")
    try:
        return SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=sampling.seed,
            stop=list(sampling.stop),
            stop_token_ids=list(sampling.stop_token_ids),
            ignore_eos=True,
            detokenize=bool(sampling.stop),
            skip_special_tokens=False,
            logprobs=0,  # of the sampled token only
            flat_logprobs=True,
            output_kind=RequestOutputKind.DELTA if streamed else RequestOutputKind.FINAL_ONLY,
        )
    except Exception as error:  # vLLM's own types
        raise ModelError(f"vLLM refuses the sampling parameters: {first_line(error)}") from error


def completion_of(output: Any, greedy: bool) -> Completion:
    """The completion of a request's last output (`RequestOutput`).

    Args:
        greedy: the most likely token was taken, with probability 1.
    """
    part = output.outputs[0]
    starts = [(span.version, span.start) for span in part.weight_versions or ()]
    ids = list(part.token_ids)
    reason, stop = ending(part)
    return Completion(ids, logprobs_of(part, greedy), versions(starts, 0, len(ids)), reason, stop)


def piece_of_output(output: Any, told: int, starts: Sequence[VersionStart], greedy: bool) -> Piece:
    """What an output of a streamed request adds.

    Args:
        told: tokens before it.
        starts: where versions begin in the whole completion.
    """
    part = output.outputs[0]
    ids = list(part.token_ids)
    reason, stop = ending(part) if output.finished else (None, None)
    return Piece(ids, logprobs_of(part, greedy), versions(starts, told, told + len(ids)), reason, stop)


def logprobs_of(part: Any, greedy: bool) -> list[float]:
    """Log-probabilities of the sampled tokens of an output's part; the first of each position is the sampled one's."""
    flat = part.logprobs
    found = [] if flat is None else [flat.logprobs[start] for start in flat.start_indices]
    # Times zero, not zero: what is not a finite number must stay visible.
    return [logprob * 0.0 for logprob in found] if greedy else found


def versions(starts: Iterable[VersionStart], begin: int, end: int) -> list[int]:
    """The version of each token from `begin` to before `end`."""
    found: list[int] = []
    marks = list(starts)
    for index, (label, start) in enumerate(marks):
        following = marks[index + 1][1] if index + 1 < len(marks) else end
        found += [int(label)] * (min(following, end) - max(start, begin))
    return found


def ending(part: Any) -> tuple[FinishReason, str | None]:
    """Why a request ended, and the stop text that ended it.

    Raises:
        ModelError: vLLM failed in it.
    """
    reason = str(part.finish_reason)
    if reason == "stop":
        return "stop", part.stop_reason if isinstance(part.stop_reason, str) else None
    if reason == "length":
        return "length", None
    if reason == "abort":
        return "abort", None
    raise ModelError(f"vLLM ended the call with {reason!r}")
