"""From a trajectory to the rows that verl trains on: one for each segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentfly.rollout.trajectory import Segment, Trajectory


@dataclass(frozen=True)
class Row:
    """One training row in verl's form: the prompt ends where the first sampled token begins.

    Attributes:
        prompt_ids: what stood before the first sampled token.
        response_ids: all from there on, observations included.
        response_mask: 1 on exactly the tokens that the policy sampled.
        response_logprobs: the sampler's log-probabilities, 0 where the mask is.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float]


def rows_of(segments: Sequence[Segment]) -> list[Row]:
    """The rows of a rollout. A segment in which nothing was sampled gives none."""
    return [_row(segment) for segment in segments if segment.mask.any()]


def chat_turns(trajectory: Trajectory) -> int:
    """Turns as verl counts them: of the user, the assistant and the tools; tools that answer together are one."""
    roles = [message["role"] for message in trajectory.messages if message["role"] != "system"]
    return sum(1 for index, role in enumerate(roles) if role != "tool" or roles[index - 1] != "tool")


def usable(trajectory: Trajectory, *, rewarded: bool) -> bool:
    """Whether verl may learn from a rollout.

    Args:
        rewarded: its reward is computed by the rollout itself, not by verl's reward workers.
    """
    if rewarded:
        return trajectory.trainable and bool(rows_of(trajectory.segments))
    ended_well = trajectory.finish_reason not in ("error", "cancelled", "timeout")
    return ended_well and trajectory.error is None and bool(rows_of(trajectory.segments))


def _row(segment: Segment) -> Row:
    begin = int(segment.mask.argmax())
    return Row(
        segment.ids[:begin].tolist(),
        segment.ids[begin:].tolist(),
        segment.mask[begin:].astype(int).tolist(),
        segment.logprobs[begin:].tolist(),
    )
