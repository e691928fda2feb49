"""Model specs, how engines are found, and a pool that samples and takes new weights on Ray."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agentfly.errors import ConfigError, ModelError
from agentfly.models import engines
from agentfly.models.engine import ChatCompletion, Completion, Sampling
from agentfly.models.local.engine import LocalEngine
from agentfly.models.spec import ModelSpec
from agentfly.resources import Resource, ResourceClient, start_manager, stop_manager


class Echo(Resource):
    """A chat engine of somebody else's."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    async def chat(self, messages: Any, tools: Any, sampling: Sampling, *, session: str = "") -> ChatCompletion:
        return ChatCompletion({"role": "assistant", "content": self.prefix}, "stop")


HERE = f"{__name__}:Echo"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Echo.__module__])


def test_the_default_is_one_shared_host() -> None:
    spec = ModelSpec(path="folder", options={"threads": 2}, max_concurrency=10)
    assert spec.resource is LocalEngine
    assert spec.args == {"path": "folder", "threads": 2}
    assert (spec.slots, spec.shared, spec.max_hosts, spec.min_size) == (10, True, 1, 10)
    assert spec.speaks == "tokens"
    assert ModelSpec(path="folder", replicas=3).max_hosts == 3


def test_the_key_tells_specs_apart_and_survives_pickling() -> None:
    spec = ModelSpec(path="folder")
    assert pickle.loads(pickle.dumps(spec)).key == spec.key == ModelSpec(path="folder").key
    others = [replace(spec, path="other"), replace(spec, options={"threads": 1}), replace(spec, max_concurrency=2)]
    assert len({spec.key, *(other.key for other in others)}) == 4
    assert others[0].args == {"path": "other"}


def test_an_engine_by_module_and_class() -> None:
    spec = ModelSpec(engine=HERE, options={"prefix": "x"}, path="unused")
    assert spec.resource is Echo
    assert spec.args == {"prefix": "x"}
    assert spec.speaks == "messages"


def test_an_installed_engine_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("echo", HERE, engines.ENTRY_POINT_GROUP)
    monkeypatch.setattr(engines, "entry_points", lambda group: [point] if group == engines.ENTRY_POINT_GROUP else [])
    assert ModelSpec(engine="echo").resource is Echo
    assert engines.engine_names() == ["echo", "openai", "scripted", "transformers", "vllm"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "nope"}, "no engine 'nope': take one of openai, scripted, transformers"),
        ({"engine": "no.such.module:Class"}, "can't be imported"),
        ({"engine": "json:Nothing"}, "has no 'Nothing'"),
        ({"engine": "json:loads"}, "no subclass of agentfly.Resource"),
        ({"engine": "agentfly.resources:Resource"}, "neither generate nor chat"),
        ({"options": {"thread": 1}}, "unexpected keyword argument 'thread'; it takes: dtype, device, threads"),
        ({"max_concurrency": 0}, "max_concurrency is 0"),
        ({"replicas": 0}, "replicas is 0"),
    ],
)
def test_a_wrong_spec_is_told_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        ModelSpec(**arguments)
    assert "\n" not in str(caught.value)


def test_a_spec_costs_no_import_of_torch() -> None:
    program = (
        "import sys; from agentfly.models.spec import ModelSpec; ModelSpec(path='x'); print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"


async def test_a_pool_samples_takes_weights_and_reports_errors(
    ray_cluster: None, model_folder: Callable[[str], str], plain_logprobs: Callable[..., torch.Tensor]
) -> None:
    folder = model_folder("qwen3")
    spec = ModelSpec(path=folder, options={"threads": 1}, max_concurrency=8)
    manager = start_manager("models-test")
    try:
        client = await ResourceClient.connect(manager)
        leases = [await client.acquire(spec) for _ in range(8)]
        prompts = [[1, 2, 3, index] for index in range(8)]

        async def sample() -> list[Completion]:
            calls = [
                lease.resource.generate(prompt, Sampling(max_tokens=6, seed=index), session=str(index))
                for index, (lease, prompt) in enumerate(zip(leases, prompts, strict=True))
            ]
            return list(await asyncio.gather(*calls))

        for prompt, completion in zip(prompts, await sample(), strict=True):
            np.testing.assert_allclose(completion.logprobs, plain_logprobs(folder, prompt, completion), atol=1e-5)
        weights = {
            name: parameter.detach().numpy() * 1.1
            for name, parameter in AutoModelForCausalLM.from_pretrained(folder).named_parameters()
        }
        await client.broadcast(spec, "update_weights", weights, 4, replay=True)
        assert {version for completion in await sample() for version in completion.policy_versions} == {4}
        with pytest.raises(ModelError, match="the prompt is empty"):
            await leases[0].resource.generate([], Sampling())
        for lease in leases:
            lease.release()
        await client.close()
    finally:
        await stop_manager(manager)
