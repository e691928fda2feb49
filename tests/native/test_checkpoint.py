from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from agentfly.backends.native import checkpoint
from agentfly.backends.native.checkpoint import Progress
from agentfly.backends.native.learner import Learner
from agentfly.backends.native.policy import Policy
from native.toys import groups_of_a_step, tiny_learner

from agentfly.errors import AgentFlyError, ConfigError
from agentfly.models.tiny import build_tokenizer


def save(folder: Path, learner: Learner, step: int, keep: int | None = None, tokenizer: Path | None = None) -> Path:
    progress = Progress(step=step, version=step, tasks_drawn=4 * step, trajectory_bytes=100)
    state = learner.optimizer.state()
    return checkpoint.save(folder, learner.policy.model, progress, state, keep=keep, tokenizer=tokenizer)


def test_everything_comes_back(tmp_path: Path) -> None:
    learner = tiny_learner(tmp_path / "model")
    learner.update(groups_of_a_step())
    place = save(tmp_path / "checkpoints", learner, 3)
    torch.manual_seed(5)
    random_state = torch.get_rng_state()
    save(tmp_path / "checkpoints", learner, 4)
    torch.rand(3)

    assert place.name == "step-00000003"
    assert checkpoint.load_progress(place) == Progress(3, 3, 12, 100)
    loaded = Policy.load(place, device="cpu").weights()
    assert all((loaded[name] == array).all() for name, array in learner.policy.weights().items())
    restored = checkpoint.load_optimizer(checkpoint.newest(tmp_path / "checkpoints"))
    assert restored["steps"] == 1
    assert torch.equal(torch.get_rng_state(), random_state)


def test_it_is_a_model_folder_with_its_tokenizer(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = build_tokenizer(["some text"], 270, tmp_path / "model")
    place = save(tmp_path / "checkpoints", tiny_learner(tmp_path / "model"), 1, tokenizer=tmp_path / "model")
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {path.name for path in place.iterdir()}
    loaded = AutoTokenizer.from_pretrained(place)
    assert loaded.encode("some text <tool_call>") == tokenizer.encode("some text <tool_call>")
    assert loaded.chat_template == tokenizer.chat_template


def test_the_newest_are_kept(tmp_path: Path) -> None:
    learner = tiny_learner(tmp_path / "model")
    for step in (1, 2, 10):
        save(tmp_path / "checkpoints", learner, step, keep=2)
    names = [path.name for path in checkpoint.list_checkpoints(tmp_path / "checkpoints")]
    assert names == ["step-00000002", "step-00000010"]


def test_a_half_written_one_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = tiny_learner(tmp_path / "model")
    save(tmp_path / "checkpoints", learner, 1)

    def die(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", die)
    with pytest.raises(AgentFlyError, match="step-00000002: No space left"):
        save(tmp_path / "checkpoints", learner, 2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_leftovers_of_a_killed_process_are_not_resumed_from(tmp_path: Path) -> None:
    whole = save(tmp_path / "checkpoints", tiny_learner(tmp_path / "model"), 1)
    (tmp_path / "checkpoints" / ".step-00000002.77.tmp").mkdir()
    (tmp_path / "checkpoints" / "step-00000003").mkdir()
    assert checkpoint.newest(tmp_path / "checkpoints") == whole


def test_nothing_to_resume_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing to resume.*--resume"):
        checkpoint.newest(tmp_path / "checkpoints")


@pytest.mark.parametrize("text", ["not json", json.dumps({"step": 1, "colour": 2})])
def test_a_spoilt_state_is_named(tmp_path: Path, text: str) -> None:
    place = save(tmp_path / "checkpoints", tiny_learner(tmp_path / "model"), 1)
    (place / "trainer_state.json").write_text(text)
    with pytest.raises(ConfigError, match=r"trainer_state.json is no trainer state"):
        checkpoint.load_progress(place)
    (place / "trainer_state.pt").write_bytes(b"rubbish")
    with pytest.raises(ConfigError, match=r"trainer_state.pt is no state of an optimiser"):
        checkpoint.load_optimizer(place)
