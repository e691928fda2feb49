"""The agent loop by itself: what verl gets when rollouts fail, when it rewards itself, when there are images."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentfly.backends.verl.loop import AgentFlyLoop, RolloutFailed
from running import cpu_environment
from test_component import configure, loop_file
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.workers.rollout.replica import TokenOutput

GROUP = 4


class OneDigit:
    """Says 7 to everything."""

    def __init__(self, model: Path) -> None:
        self.ids = AutoTokenizer.from_pretrained(model).encode("7<|im_end|>")
        self.asked: list[dict[str, Any]] = []

    async def generate(self, **asked: Any) -> TokenOutput:
        self.asked.append(asked)
        steps = {"global_steps": 2, "min_global_steps": 2, "max_global_steps": 2}
        scores = [-1.0] * len(self.ids)
        return TokenOutput(token_ids=self.ids, log_probs=scores, stop_reason="completed", extra_fields=steps)


Play = Callable[..., Any]


@pytest.fixture
def play(model: Path, dataset: Path, tmp_path: Path) -> Play:
    """Plays a group in verl's worker; returns what the loop gives for each member, errors included."""

    async def run(settings: dict[str, Any], *more: str, v1: bool = True, **row: Any) -> tuple[list[Any], OneDigit]:
        server = OneDigit(model)
        worker = AgentLoopWorker(configure(model, dataset, loop_file(tmp_path, **settings), *more), server, None, None)

        async def as_it_is(output: Any, validate: bool, **kwargs: Any) -> Any:
            return output

        worker._agent_loop_postprocess = as_it_is

        async def member(index: int) -> Any:
            given = {"raw_prompt": [{"role": "user", "content": "7?"}], "uid": "u", "index": 0, **row}
            if v1:
                given |= {"session_id": index, "global_steps": 3}
            trajectory = {"step": 3, "sample_index": 0, "rollout_n": index, "validate": False}
            params = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True}
            return await worker._run_agent_loop(params, trajectory, agent_name="digits", **given)

        members = (member(index) for index in range(GROUP if v1 else 1))
        return await asyncio.gather(*members, return_exceptions=True), server

    return run


MOODY = {"agent": "agents:moody_agent", "family": "qwen3"}


async def test_a_failed_rollout_gives_no_row_and_the_others_stay(play: Play) -> None:
    results, _ = await play(MOODY, extra_info={"bad": [0]})
    assert results[0] == []
    for (row,) in results[1:]:
        assert (row.reward_score, row.response_mask, row.num_turns) == (7.0, [1, 1], 2)
        assert row.extra_fields["min_global_steps"] == row.extra_fields["max_global_steps"] == 2
        assert row.extra_fields["reward_extra_info"]["turns"] == 1


@pytest.mark.parametrize("bad", [[0, 1, 2], [0, 1, 2, 3]])
async def test_a_group_without_two_to_compare_is_failed(play: Play, bad: list[int]) -> None:
    results, _ = await play(MOODY, extra_info={"bad": bad})
    assert all(isinstance(result, RolloutFailed) for result in results)
    assert "in a bad mood" in str(results[0])


async def test_the_last_of_a_group_counts_where_nothing_is_compared(play: Play) -> None:
    results, _ = await play(MOODY, "algorithm.adv_estimator=gae", extra_info={"bad": [0, 1, 2]})
    assert results[:3] == [[], [], []]
    assert len(results[3]) == 1


async def test_under_v0_a_failed_rollout_is_a_row_that_teaches_nothing(play: Play) -> None:
    (result,), _ = await play(MOODY, v1=False, extra_info={"bad": list(range(10))})
    assert (result.response_mask, result.reward_score) == ([0], 0.0)
    assert "in a bad mood" in result.extra_fields["agentfly"]["error"]


async def test_verls_reward_workers_may_do_it(play: Play) -> None:
    results, _ = await play({"agent": "agents:unrewarded_agent", "family": "qwen3", "reward": "verl"})
    for (row,) in results:
        assert row.reward_score is None and "reward_extra_info" not in row.extra_fields
    results, _ = await play({"agent": "agents:unrewarded_agent", "family": "qwen3"})
    assert all("has no reward" in str(result) for result in results)


async def test_limits_of_verl_hold(play: Play) -> None:
    results, _ = await play(MOODY, "data.max_prompt_length=8", extra_info={"bad": []})
    assert all("raise data.max_prompt_length (8)" in str(result) for result in results)
    results, server = await play(MOODY, "data.max_response_length=1", extra_info={"bad": []})
    assert [asked["sampling_params"]["max_tokens"] for asked in server.asked] == [1] * GROUP


async def test_images_reach_the_server_and_the_row(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def images(self: Any, messages: list[dict]) -> dict[str, Any]:
        return {"images": ["pixels"]}

    async def tokens(self: Any, messages: list[dict], **media: Any) -> list[int]:
        assert media["images"] == ["pixels"]
        return [5, 6, 7]

    monkeypatch.setattr(AgentFlyLoop, "process_multi_modal_info", images)
    monkeypatch.setattr(AgentFlyLoop, "ct_build_initial_tokens", tokens)
    monkeypatch.setattr(AgentFlyLoop, "_assert_mm_supported", lambda self, has: None)
    results, server = await play(MOODY, extra_info={"bad": []})
    assert all(asked["image_data"] == ["pixels"] and asked["prompt_ids"] == [5, 6, 7] for asked in server.asked)
    for (row,) in results:
        assert row.multi_modal_data == {"images": ["pixels"]}
        assert row.prompt_ids == [5, 6, 7]


async def test_the_plugins_loop_takes_its_settings_from_the_data_section(play: Play) -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    assert _agent_loop_registry["agentfly"] == {"_target_": "agentfly.backends.verl.plugin.plugin_loop"}
    _agent_loop_registry["digits"] = _agent_loop_registry["agentfly"]
    settings = ["+data.agentfly.agent=agents:moody_agent", "+data.agentfly.family=qwen3"]
    more = ["actor_rollout_ref.rollout.agent.agent_loop_config_path=null", *settings]
    results, _ = await play({}, *more, extra_info={"bad": []})
    assert all(row.reward_score == 7.0 for (row,) in results)


def test_the_plugin_says_why_it_can_not_be_loaded() -> None:
    broken = (
        "import agentfly.backends.verl.versions as versions\n"
        "versions._NEEDED['verl'] = versions.SpecifierSet('==0.8')\n"
        "import verl\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken], env=cpu_environment(), capture_output=True, text=True, check=True
    )
    assert "AgentFly's agent loop can't be used in verl: ConfigError: backend verl: verl 0.9.1 is inst" in done.stderr
