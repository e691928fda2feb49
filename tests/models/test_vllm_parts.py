"""What the vllm engine decides without vLLM; the rest is under tests/vllm."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly.errors import ConfigError, ModelError
from agentfly.models.spec import ModelSpec
from agentfly.models.tiny import build_model
from agentfly.models.vllm.engine import VllmEngine
from agentfly.models.vllm.options import VllmOptions
from agentfly.models.vllm.translate import ending, versions
from agentfly.models.vllm.weights import check_weights, has_tied_head, saved_shapes, weights_file


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_running": 0}, "max_running is 0"),
        ({"gpu_memory": 1.5}, "gpu_memory is 1.5"),
        ({"executor": "cluster"}, "one of mp, ray, uni"),
        ({"executor": "uni", "tensor_parallel": 2}, "tensor_parallel is 2"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        VllmEngine("model", **options)


def test_it_is_found_by_name_and_its_options_are_checked() -> None:
    spec = ModelSpec(engine="vllm", path="model", options={"tensor_parallel": 2})
    assert spec.resource is VllmEngine
    assert spec.speaks == "tokens"
    with pytest.raises(ConfigError, match="no_such_option"):
        ModelSpec(engine="vllm", path="model", options={"no_such_option": 1})


def test_what_the_user_set_in_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # Ray's, not the user's
    found = VllmOptions("model", threads=3, cpu_cache_gib=2).environment()
    assert "VLLM_LOGGING_LEVEL" not in found
    assert (found["OMP_NUM_THREADS"], found["VLLM_CPU_KVCACHE_SPACE"]) == ("3", "2")
    assert "OMP_NUM_THREADS" not in VllmOptions("model").environment()


@given(st.lists(st.integers(1, 5), max_size=6), st.data())
def test_every_token_has_its_version_however_it_is_cut(lengths: list[int], data: st.DataObject) -> None:
    whole = [version for version, length in enumerate(lengths) for _ in range(length)]
    starts = [(str(version), sum(lengths[:version])) for version in range(len(lengths))]
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, len(whole)))
    assert versions(starts, begin, end) == whole[begin:end]


def test_reasons_of_ending() -> None:
    told = [
        ending(SimpleNamespace(finish_reason=reason, stop_reason=stop))
        for reason, stop in (("stop", 7), ("stop", "</a>"), ("length", None), ("abort", None))
    ]
    assert told == [("stop", None), ("stop", "</a>"), ("length", None), ("abort", None)]
    with pytest.raises(ModelError, match="error"):
        ending(SimpleNamespace(finish_reason="error", stop_reason=None))


@pytest.mark.parametrize("tied", [True, False])
def test_weights_are_compared_with_the_folder(tmp_path: Path, tied: bool) -> None:
    model = build_model(tmp_path, vocab_size=64, hidden=32, layers=1, heads=2, tied=tied)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    saved = saved_shapes(str(tmp_path))
    assert has_tied_head(str(tmp_path)) is tied
    check_weights(state, saved, tied=tied)
    without = {name: value for name, value in state.items() if name != "lm_head.weight"}
    if tied:
        check_weights(without, saved, tied=True)
    else:
        with pytest.raises(ModelError, match=r"'lm_head.weight' is missing"):
            check_weights(without, saved, tied=False)
    with pytest.raises(ModelError, match="no weight 'other'"):
        check_weights({**state, "other": np.zeros(1)}, saved, tied=tied)
    with pytest.raises(ModelError, match=r"has shape \(3,\)"):
        check_weights({**state, "model.norm.weight": np.zeros(3)}, saved, tied=tied)
    check_weights({"anything": np.zeros(1)}, {}, tied=tied)


def test_a_file_of_weights_is_there_for_its_block_only(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    array.flags.writeable = False
    with weights_file({"a": array, "b": array.T}, str(tmp_path)) as file:
        found = load_file(file)
        assert (found["a"] == array).all() and (found["b"] == array.T).all()
    assert list(tmp_path.iterdir()) == []


async def test_without_vllm_the_engine_says_what_to_install(tmp_path: Path) -> None:
    build_model(tmp_path, vocab_size=64, hidden=32, layers=1, heads=2)
    with pytest.raises(ConfigError, match=r"agentfly-rl\[vllm\]"):
        await VllmEngine(str(tmp_path)).start()
