"""A trajectory in the form that verl takes: `AgentLoopOutput`s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentfly.backends.verl.engine import Call
from agentfly.backends.verl.opener import VerlOpener
from agentfly.backends.verl.rows import Row, chat_turns, rows_of
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.tool_agent_loop import SPEC_DECODE_EXTRA_KEYS

from agentfly.rollout.trajectory import Trajectory


def outputs_of(trajectory: Trajectory, opener: VerlOpener, *, rewarded: bool, stable: bool) -> list[Any]:
    """The rows of a rollout, the last one with its reward.

    Args:
        trajectory: one that can be learned from.
        opener: that it was played with.
        rewarded: the rollout computed its reward; else verl's reward workers will.
        stable: give only numbers that every rollout has, as V0 asks for.
    """
    rows = rows_of(trajectory.segments)
    outputs = []
    for row, calls in zip(rows, _calls_of(rows, opener.log.calls), strict=True):
        extra: dict[str, Any] = {**steps_of(calls), "turn_scores": [], "tool_rewards": []}
        extra["agentfly"] = _told(trajectory)
        if rewarded:
            extra["reward_extra_info"] = numbers_of(trajectory, stable=stable)
        outputs.append(
            AgentLoopOutput(
                prompt_ids=row.prompt_ids,
                response_ids=row.response_ids,
                response_mask=row.response_mask,
                response_logprobs=row.response_logprobs if opener.log.scored else None,
                routed_experts=calls[-1].routed_experts if calls else None,
                reward_score=trajectory.reward if rewarded else None,
                num_turns=chat_turns(trajectory),
                metrics=_metrics(trajectory, opener),
                extra_fields=extra,
                **_media(opener),
            )
        )
    return outputs


def failed_output(trajectory: Trajectory, opener: VerlOpener) -> Any:
    """The row of a rollout that came to nothing, under V0, which wants one of every rollout: no token of it is learned.

    Its reward of 0 counts in its group.
    """
    opening = opener.opening or [0]
    return AgentLoopOutput(
        prompt_ids=opening[-opener.prompt_length :],
        response_ids=[0],
        response_mask=[0],
        response_logprobs=[0.0] if opener.log.scored else None,
        reward_score=0.0,
        num_turns=chat_turns(trajectory),
        metrics=_metrics(trajectory, opener),
        extra_fields={
            **steps_of(opener.log.calls),
            "turn_scores": [],
            "tool_rewards": [],
            "agentfly": _told(trajectory),
            "reward_extra_info": numbers_of(trajectory, stable=True),
        },
    )


def steps_of(calls: Sequence[Call]) -> dict[str, Any]:
    """The servers' own fields over several calls: the oldest and newest weights, sums of speculative decoding."""
    merged: dict[str, Any] = dict(calls[0].extra) if calls else {}
    for call in calls[1:]:
        for name, value in call.extra.items():
            known = merged.get(name)
            if known is None or name not in _MERGED:
                merged.setdefault(name, value)
            elif value is not None:
                merged[name] = _MERGED[name](known, value)
    return merged


def numbers_of(trajectory: Trajectory, *, stable: bool) -> dict[str, float]:
    """What verl reports of a rollout beside its reward.

    Args:
        stable: leave out what a rollout may or may not have logged.
    """
    timing = trajectory.timing
    numbers = {
        "turns": float(trajectory.turns),
        "tool_calls": float(trajectory.tool_calls),
        "tool_errors": float(trajectory.tool_errors),
        "truncated": float(trajectory.truncated),
        "attempt": float(trajectory.attempt),
        "seconds_waiting": timing.waiting,
        "seconds_generating": timing.generating,
        "seconds_tools": timing.tools,
        "seconds_reward": timing.reward,
        "seconds_total": timing.total,
    }
    return numbers if stable else {**trajectory.metrics, **numbers}


def _calls_of(rows: Sequence[Row], calls: Sequence[Call]) -> Iterator[list[Call]]:
    """The calls that each row's sampled tokens came from."""
    remaining = list(calls)
    for row in rows:
        sampled, taken = sum(row.response_mask), []
        while remaining and sampled > 0:
            taken.append(remaining.pop(0))
            sampled -= taken[-1].tokens
        yield taken


def _metrics(trajectory: Trajectory, opener: VerlOpener) -> Any:
    timing = trajectory.timing
    return AgentLoopMetrics(
        generate_sequences=timing.generating,
        tool_calls=timing.tools,
        compute_score=timing.reward,
        num_preempted=opener.log.preempted,
    )


def _told(trajectory: Trajectory) -> dict[str, Any]:
    """What AgentFly knows of the rollout, for reward functions and dumps of verl's users."""
    return {
        "rollout_id": trajectory.rollout_id,
        "finish_reason": trajectory.finish_reason,
        "metrics": dict(trajectory.metrics),
        "error": trajectory.error,
    }


def _media(opener: VerlOpener) -> dict[str, Any]:
    """What verl needs to compute a multi-modal row's inputs again."""
    names = {"image_data": "images", "video_data": "videos", "audio_data": "audios"}
    data = {names[name]: value for name, value in opener.media.items() if name in names and value is not None}
    if not data:
        return {}
    return {
        "multi_modal_data": data,
        "mm_processor_kwargs": opener.media.get("mm_processor_kwargs"),
        "mm_processor_output": opener.media.get("mm_processor_output"),
    }


_MERGED: Mapping[str, Any] = {
    "min_global_steps": min,
    "max_global_steps": max,
    "global_steps": max,
    **{name: lambda known, value: int(known) + int(value) for name in SPEC_DECODE_EXTRA_KEYS},
}
