"""The unmodified verl with our agent loop, as a user would run it: `main_ppo`, V1, two steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from assets import make_model
from running import cpu_environment, main_ppo, pipeline, read_lines
from transformers import AutoTokenizer

STEPS, PROMPTS, GROUP = 2, 4, 4


def run(
    folder: Path, model: Path, dataset: Path, *settings: str, **environment: str
) -> tuple[str, list[dict], list[dict]]:
    """Returns what verl printed, its metrics, and the rows that it trained on."""
    (folder / "loops.yaml").write_text(
        "- name: digits\n  _target_: agentfly.backends.verl.loop.AgentFlyLoop\n  agent: agents:agent\n  timeout: 60\n"
    )
    files = {
        "DIARY": folder / "diary",
        "ROWS": folder / "rows.jsonl",
        "VERL_FILE_LOGGER_PATH": folder / "metrics.jsonl",
    }
    text = main_ppo(
        [
            *pipeline(model, dataset),
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={folder / 'loops.yaml'}",
            "actor_rollout_ref.rollout.agent.default_agent_loop=digits",
            f"trainer.v1.sampler.custom_sampler.path={Path(__file__).parent / 'sampler.py'}",
            "trainer.v1.sampler.custom_sampler.name=WatchingBuffer",
            *settings,
        ],
        folder,
        cpu_environment(**{name: str(file) for name, file in files.items()}, **environment),
    )
    return text, read_lines(folder / "metrics.jsonl"), read_lines(folder / "rows.jsonl")


def check_training(text: str, metrics: list[dict]) -> None:
    """Weights change, reach the replica, and its log-probabilities are the trainer's."""
    weights = re.findall(r"WEIGHTS step=(\S+) sent=(\S+) served=(\S+)", text)
    assert len({sent for _, sent, _ in weights}) == STEPS + 1, weights
    assert [line["step"] for line in metrics] == [1, 2]
    for line in metrics:
        assert line["data"]["training/rollout_probs_diff_max"] < 1e-4
        assert line["data"]["actor/grad_norm"] > 0


def check_masks(rows: list[dict], model: Path) -> int:
    """No token of an observation is trained on, every other one is; returns the observations seen."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    seen = 0
    for row in rows:
        assert len(row["responses"]) == len(row["response_mask"]) == len(row["rollout_log_probs"])
        sampled = [token for token, mask in zip(row["responses"], row["response_mask"], strict=True) if mask]
        masked = [token for token, mask in zip(row["responses"], row["response_mask"], strict=True) if not mask]
        observed = tokenizer.decode(masked)
        assert "<tool_response>" not in tokenizer.decode(sampled)
        assert observed.count("<tool_response>") == observed.count("</tool_response>")
        seen += observed.count("<tool_response>\na digit\n</tool_response>")
        scores = zip(row["rollout_log_probs"], row["response_mask"], strict=True)
        assert all((score < 0) if mask else (score == 0) for score, mask in scores)
    return seen


def check_pools(diary: Path) -> None:
    """Every lease came back, and no host is alive."""
    entries = [line.split() for line in diary.read_text().splitlines()]
    assert any(what == "look" for what, _ in entries)
    hosts = {int(pid) for _, pid in entries}
    # The pool's size allows two at a time; a pool for each of verl's two workers would have made four.
    died = sum(what == "die" for what, _ in entries)
    assert len(hosts) <= 2 + died
    assert not [pid for pid in hosts if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
def test_a_flat_rollout_is_one_row(model: Path, dataset: Path, tmp_path: Path) -> None:
    text, metrics, rows = run(tmp_path, model, dataset)
    check_training(text, metrics)
    assert len(rows) == STEPS * PROMPTS * GROUP
    assert all(row["key"].endswith("_0") for row in rows)
    assert check_masks(rows, model) >= len(rows) / 2
    check_pools(tmp_path / "diary")
    assert "AgentFly's agent loop can't be used" not in text


@pytest.mark.slow
def test_a_rollout_in_segments_is_a_row_for_each(dataset: Path, tmp_path: Path) -> None:
    """The model thinks before it calls, and its template forgets thoughts: the second turn can't extend the first."""
    folder = tmp_path / "model"
    make_model(folder, forgetful=True)
    text, metrics, rows = run(tmp_path, folder, dataset)
    check_training(text, metrics)
    trained = [row for row in rows if sum(row["response_mask"])]
    sessions = {row["key"].rpartition("_")[0] for row in trained}
    assert len(sessions) == STEPS * PROMPTS * GROUP
    assert len(trained) > len(sessions)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    second = [row for row in trained if row["key"].endswith("_1")]
    assert all("a digit" in tokenizer.decode(row["prompts"]) for row in second)
    assert all("<think>" not in tokenizer.decode(row["prompts"]) for row in second)
    assert check_masks(trained, folder) == 0, "observations stand in the prompts of later rows"
    scores = {row["key"]: sum(row["rm_scores"]) for row in trained}
    for session in sessions:
        assert len({score for key, score in scores.items() if key.startswith(f"{session}_")}) == 1
    check_pools(tmp_path / "diary")


@pytest.mark.slow
def test_a_host_that_dies_does_not_end_the_step(model: Path, dataset: Path, tmp_path: Path) -> None:
    text, metrics, rows = run(tmp_path, model, dataset, SUICIDE="5")
    assert "die" in (tmp_path / "diary").read_text()
    check_training(text, metrics)
    assert len(rows) == STEPS * PROMPTS * GROUP
    assert "starts over" in text or "attempt 0" in text
    check_masks(rows, model)
    check_pools(tmp_path / "diary")
