"""The agent loop on a played conversation: what the policy does wrong is observed, what the engine states ends it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import pytest

import agentfly.agent as af
from agentfly.context import Context, Fault, FromTask, Task
from agentfly.errors import ModelError, ResourceDied
from agentfly.models.engine import Message, Sampling
from agentfly.rollout.conversation import AssistantTurn, ParsedCall
from agentfly.rollout.loop import InfrastructureFault, RolloutLoop
from agentfly.rollout.trajectory import Segment, SegmentBuilder, Trajectory

Play = Callable[[list[Message], Sampling], AssistantTurn]


def say(text: str, *calls: ParsedCall, truncated: bool = False) -> AssistantTurn:
    message: Message = {"role": "assistant", "content": text}
    reason = "length" if truncated else "stop"
    return AssistantTurn(message, list(calls), reason, truncated, completion_tokens=len(text.split()))


def call(name: str, error: str | None = None, **arguments: object) -> ParsedCall:
    return ParsedCall(id=f"call-{name}", name=name, arguments=arguments, error=error, raw="")


class Played:
    """A conversation whose assistant is a list of turns, or a function."""

    def __init__(self, turns: Sequence[AssistantTurn | Exception], max_context: int | None = None) -> None:
        self.messages: list[Message] = [{"role": "user", "content": "go"}]
        self.turns = list(turns)
        self.max_context = max_context
        self.prompt_length = 10
        self.samplings: list[Sampling] = []

    async def next(self, sampling: Sampling) -> AssistantTurn:
        self.samplings.append(sampling)
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        self.messages.append(turn.message)
        self.prompt_length += 10
        return turn

    def add(self, messages: Sequence[Message]) -> None:
        self.messages.extend(messages)
        self.prompt_length += 10

    def segments(self) -> list[Segment]:
        return [SegmentBuilder().build()]

    def drift(self) -> bool | None:
        return None


@af.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@af.tool(terminal=True)
async def submit(answer: str) -> str:
    """Hand in."""
    return f"submitted {answer}"


@af.tool
async def broken() -> str:
    """Raise."""
    raise ValueError("wires crossed")


@af.tool
async def dead_box(ctx: Context) -> str:
    """Lose its resource; whether the engine knows is up to the task."""
    if ctx.task["stated"]:
        ctx.faults.append(Fault(kind="ResourceDied", pool="box", detail="the box died"))
    if ctx.task.get("hidden"):
        return "all is well"
    raise ResourceDied("the box died")


@af.reward
def length(final_response: str) -> float:
    return float(len(final_response))


async def play(
    conversation: Played,
    tools: Sequence[af.Tool] = (echo, submit, broken),
    reward: af.Reward | None = length,
    timeout: float | None = None,
    task: Task | None = None,
    **limits: int,
) -> Trajectory:
    agent = af.Agent(tools=list(tools), reward=reward, **limits)
    task = task or Task("t", {"prompt": "go"})
    ctx = Context(rollout_id="g.0", group_id="g", task=task)
    trajectory = Trajectory("g.0", "g", 0, task)
    loop = RolloutLoop(agent, conversation, ctx, trajectory, sampling=Sampling(), seed=7, timeout=timeout)
    try:
        return await loop.run()
    finally:
        await ctx.close()


def observations(trajectory: Trajectory) -> list[str]:
    return [message["content"] for message in trajectory.messages if message["role"] == "tool"]


async def test_a_turn_without_calls_is_the_end() -> None:
    trajectory = await play(Played([say("", call("echo", text="a")), say("done")]))
    assert trajectory.finish_reason == "stop"
    assert observations(trajectory) == ["a"]
    assert (trajectory.turns, trajectory.tool_calls, trajectory.tool_errors) == (2, 1, 0)
    assert trajectory.reward == 4.0
    assert trajectory.trainable


async def test_a_terminal_tool_is_the_end() -> None:
    trajectory = await play(Played([say("", call("submit", answer="x"))]))
    assert trajectory.finish_reason == "terminal"
    assert observations(trajectory) == ["submitted x"]


async def test_max_turns_still_runs_the_last_calls() -> None:
    trajectory = await play(Played([say("", call("echo", text=str(n))) for n in range(2)]), max_turns=2)
    assert trajectory.finish_reason == "max_turns"
    assert observations(trajectory) == ["0", "1"]


async def test_everything_the_policy_does_wrong_is_an_observation() -> None:
    wrong = [
        call("echo", error="the JSON ends too early"),
        call("nothing_like_it"),
        call("echo", txet="a"),
        call("broken"),
    ]
    trajectory = await play(Played([say("", *wrong), say("sorry")]))
    malformed, unknown, argument, raised = observations(trajectory)
    assert "ends too early" in malformed
    assert "nothing_like_it" in unknown and "echo, submit, broken" in unknown
    assert "text" in argument
    assert "wires crossed" in raised
    assert trajectory.tool_errors == 4
    assert trajectory.finish_reason == "stop"
    assert trajectory.trainable


async def test_too_many_malformed_turns_in_a_row_have_their_own_reason() -> None:
    bad = say("", call("echo", error="no"))
    good = say("", call("echo", text="a"))
    trajectory = await play(Played([bad, good, bad, bad, good]), max_invalid_calls=2)
    assert trajectory.finish_reason == "invalid_calls"
    assert trajectory.turns == 4


async def test_calls_of_one_turn_run_side_by_side_within_the_limit() -> None:
    running, most = 0, 0
    met = asyncio.Barrier(2)

    @af.tool
    async def meet(n: int) -> str:
        """Wait for a partner."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await met.wait()
        running -= 1
        return str(n)

    calls = [call("meet", n=n) for n in range(4)]
    trajectory = await play(Played([say("", *calls), say("done")]), tools=[meet], max_parallel_calls=2)
    assert observations(trajectory) == ["0", "1", "2", "3"]
    assert most == 2


@pytest.mark.parametrize(("max_context", "reason"), [(25, "context_full"), (1000, "max_tokens")])
async def test_a_cut_completion_ends_the_rollout(max_context: int, reason: str) -> None:
    conversation = Played([say("one two", truncated=True)], max_context=max_context)
    conversation.prompt_length = 20
    trajectory = await play(conversation)
    assert trajectory.finish_reason == reason
    assert trajectory.truncated


async def test_a_prompt_without_room_ends_the_rollout_before_the_engine_is_asked() -> None:
    trajectory = await play(Played([], max_context=10))
    assert trajectory.finish_reason == "context_full"
    assert trajectory.turns == 0


async def test_total_tokens_are_shared_out_over_the_turns() -> None:
    conversation = Played([say("a b c", call("echo", text="x")), say("d e", call("echo", text="y"))])
    trajectory = await play(conversation, max_tokens=4, max_total_tokens=5)
    assert trajectory.finish_reason == "max_tokens"
    assert [sampling.max_tokens for sampling in conversation.samplings] == [4, 2]


async def test_each_turn_has_its_own_seed_and_the_same_one_again() -> None:
    seeds = []
    for _ in range(2):
        conversation = Played([say("", call("echo", text="a")), say("done")])
        await play(conversation)
        seeds.append([sampling.seed for sampling in conversation.samplings])
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


async def test_a_rollout_past_its_time_ends_with_what_it_has() -> None:
    @af.tool(timeout=None)
    async def hang() -> str:
        """Never come back."""
        await asyncio.Event().wait()
        return ""

    trajectory = await play(Played([say("calling", call("hang"))]), tools=[hang], timeout=0.05)
    assert trajectory.finish_reason == "timeout"
    assert trajectory.messages[-1]["content"] == "calling"
    assert not trajectory.trainable


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", None])
async def test_a_reward_that_is_no_number_leaves_the_rollout_out_of_training(value: object) -> None:
    @af.reward
    def wrong() -> object:
        return value

    trajectory = await play(Played([say("done")]), reward=wrong)
    assert trajectory.reward is None
    assert trajectory.error is not None and "wrong" in trajectory.error
    assert not trajectory.trainable


async def test_only_the_ledger_makes_a_fault_one_of_the_infrastructure() -> None:
    turns = [say("", call("dead_box")), say("oh")]
    claimed = await play(Played(turns), tools=[dead_box], task=Task("t", {"stated": False}))
    assert claimed.finish_reason == "stop"
    assert "the box died" in observations(claimed)[0]
    with pytest.raises(InfrastructureFault, match="the box died"):
        await play(Played(turns), tools=[dead_box], task=Task("t", {"stated": True}))


async def test_a_tool_cannot_hide_that_its_resource_is_gone() -> None:
    with pytest.raises(InfrastructureFault, match="the box died"):
        await play(
            Played([say("", call("dead_box")), say("oh")]),
            tools=[dead_box],
            task=Task("t", {"stated": True, "hidden": True}),
        )


async def test_a_failing_engine_voids_the_attempt() -> None:
    with pytest.raises(InfrastructureFault, match="out of memory"):
        await play(Played([ModelError("out of memory")]))


async def test_tools_get_fields_of_the_task_that_the_model_cannot_set() -> None:
    from typing import Annotated

    @af.tool
    async def reveal(secret: Annotated[str, FromTask]) -> str:
        """Tell."""
        return secret

    conversation = Played([say("", call("reveal"), call("reveal", secret="mine")), say("done")])
    trajectory = await play(conversation, tools=[reveal], task=Task("t", {"secret": "theirs"}))
    told, refused = observations(trajectory)
    assert told == "theirs"
    assert "mine" not in refused and "secret" in refused


async def test_the_time_of_a_rollout_is_split() -> None:
    rng = random.Random(0)
    trajectory = await play(Played([say("", call("echo", text=str(rng.random()))), say("done")]))
    timing = trajectory.timing
    assert timing.total >= timing.generating + timing.tools + timing.reward
    assert min(timing.generating, timing.tools, timing.reward) > 0
