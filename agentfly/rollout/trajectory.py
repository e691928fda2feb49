"""What a rollout leaves behind: exact tokens, the conversation, the reward, and where its time went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from agentfly.context.task import Task
from agentfly.models.engine import Message

FinishReason = Literal[
    "stop",
    "terminal",
    "max_turns",
    "max_tokens",
    "context_full",
    "invalid_calls",
    "timeout",
    "error",
    "cancelled",
]
FINISH_REASONS: tuple[str, ...] = get_args(FinishReason)


@dataclass(frozen=True, eq=False)
class Segment:
    """One append-only run of tokens: everything that was in a context, in order.

    Attributes:
        ids: int32[n], prompts, observations and sampled tokens.
        mask: bool[n], true on exactly the tokens that the policy sampled.
        logprobs: float32[n], the sampler's log-probability where mask is true, 0 elsewhere.
        versions: int32[n], version of the weights that sampled the token, -1 where mask is false.
    """

    ids: npt.NDArray[np.int32]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    versions: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        if not self.ids.shape == self.mask.shape == self.logprobs.shape == self.versions.shape:
            raise ValueError(
                f"a segment's arrays must have one length, got ids {self.ids.shape}, mask {self.mask.shape}, "
                f"logprobs {self.logprobs.shape}, versions {self.versions.shape}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Segment) and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("ids", "mask", "logprobs", "versions")
        )


class SegmentBuilder:
    """Grows a segment by prompts and completions; the parts stay aligned by construction."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._mask: list[bool] = []
        self._logprobs: list[float] = []
        self._versions: list[int] = []

    @property
    def ids(self) -> Sequence[int]:
        """Everything so far; the next prompt must begin with it."""
        return self._ids

    def add_context(self, ids: Sequence[int]) -> None:
        """Append tokens that the policy did not sample."""
        self._ids.extend(ids)
        self._mask.extend([False] * len(ids))
        self._logprobs.extend([0.0] * len(ids))
        self._versions.extend([-1] * len(ids))

    def add_sampled(self, ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int]) -> None:
        """Append what the policy sampled; the three sequences have one length."""
        if not len(ids) == len(logprobs) == len(versions):
            raise ValueError(f"{len(ids)} sampled ids came with {len(logprobs)} logprobs and {len(versions)} versions")
        self._ids.extend(ids)
        self._mask.extend([True] * len(ids))
        self._logprobs.extend(logprobs)
        self._versions.extend(versions)

    def build(self) -> Segment:
        """The segment so far, as arrays."""
        return Segment(
            np.asarray(self._ids, np.int32),
            np.asarray(self._mask, np.bool_),
            np.asarray(self._logprobs, np.float32),
            np.asarray(self._versions, np.int32),
        )


@dataclass
class Timing:
    """Seconds of a rollout's life, by what it was doing.

    Attributes:
        waiting: in the queues of resource pools (the model's permit included).
        generating: in the engine.
        tools: in tools, their waiting taken out.
        reward: in the reward.
        total: from admission to the end.
    """

    waiting: float = 0.0
    generating: float = 0.0
    tools: float = 0.0
    reward: float = 0.0
    total: float = 0.0


@dataclass
class Trajectory:
    """One finished rollout.

    Attributes:
        rollout_id: unique in the job: `<group_id>.<index>`.
        group_id: shared by the rollouts of one task in one pass.
        index: position in the group.
        task: what was asked.
        messages: the whole conversation in OpenAI form.
        segments: the exact tokens; empty when the engine gave none (a plain chat endpoint).
        finish_reason: why it ended.
        reward: the reward; None when it was not computed or failed (then `error` says why).
        metrics: numbers of rewards and of `ctx.log`.
        turns: completions sampled.
        tool_calls: calls carried out; `tool_errors` of them gave an error observation.
        truncated: a completion was cut by its token limit.
        attempt: 0, or how many infrastructure faults made it start over.
        timing: where its time went.
        error: what went wrong, for the finish reasons `error` and `cancelled` and a failed reward.
    """

    rollout_id: str
    group_id: str
    index: int
    task: Task
    messages: list[Message] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    finish_reason: FinishReason = "stop"
    reward: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    truncated: bool = False
    attempt: int = 0
    timing: Timing = field(default_factory=Timing)
    error: str | None = None

    @property
    def trainable(self) -> bool:
        """Whether a trainer may learn from it: it has tokens and a reward, and nothing but the policy ended it.

        A rollout past its time limit is left out: a slow engine looks the same as a slow policy. What a policy
        can be blamed for (a tool that hangs) has the tool's own limit, and is an observation.
        """
        return (
            self.reward is not None
            and bool(self.segments)
            and self.finish_reason not in ("error", "cancelled", "timeout")
        )

    @property
    def final_response(self) -> str:
        """Text of the last assistant message, empty when there was none."""
        for message in reversed(self.messages):
            if message["role"] == "assistant":
                content: str = message["content"]
                return content
        return ""


@dataclass
class Group:
    """The rollouts of one task in one pass, ordered by index."""

    id: str
    task: Task
    trajectories: list[Trajectory]

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)

    @property
    def trainable(self) -> list[Trajectory]:
        """Those that a trainer may learn from."""
        return [trajectory for trajectory in self.trajectories if trajectory.trainable]


def mean_metrics(trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
    """Mean of every metric over the trajectories that have it."""
    sums: dict[str, list[float]] = {}
    for trajectory in trajectories:
        for name, value in trajectory.metrics.items():
            sums.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in sums.items()}


def as_plain(value: Any) -> Any:
    """Plain JSON data (mappings, lists, scalars) of a task's field or a message."""
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
