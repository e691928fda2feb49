"""Our agent loop against verl's own `tool_agent`, in verl's own worker, with the same fake server and the same tool.

Run it in the environment of verl: `$(scripts/verl-env)/bin/python benchmarks/verl_overhead.py`.

Turns a second, with an instant server and a tool that does nothing; and seconds for 256 rollouts with a tool that
blocks for a tenth of a second, written as verl's users write one (a function that isn't a coroutine).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    VERL_PLATFORM="cpu",
    VERL_USE_EXTERNAL_MODULES="cpu_platform",
    VERL_LOGGING_LEVEL="ERROR",
)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "verl"))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from agentfly.backends.verl.session import closing_sessions
from hydra import compose, initialize_config_module
from running import CPU, pipeline
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput

from agentfly.models.tiny import build_model, build_tokenizer

TOOLS = '''
import time
from verl.tools.function_tool import function_tool

@function_tool
async def nothing(x: int) -> str:
    """Do nothing.

    Args:
        x: any number.
    """
    return "ok"

@function_tool
def slow(x: int) -> str:
    """Take a while.

    Args:
        x: any number.
    """
    time.sleep(0.1)
    return "ok"
'''


class InstantServer:
    """Calls a tool in all turns but the last, at once.

    Args:
        call, answer: completions, as token ids.
        turns: of a rollout.
    """

    def __init__(self, call: list[int], answer: list[int], turns: int) -> None:
        self._call, self._answer, self._turns = call, answer, turns
        self._played: dict[str, int] = {}
        self.calls = 0

    async def generate(self, request_id: str, **asked: Any) -> TokenOutput:
        self.calls += 1
        played = self._played[request_id] = self._played.get(request_id, 0) + 1
        ids = list(self._answer if played >= self._turns else self._call)
        extra = {"global_steps": 0, "min_global_steps": 0, "max_global_steps": 0}
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), stop_reason="completed", extra_fields=extra)


class Setup:
    """A model folder, a dataset and verl's configuration in a scratch folder."""

    def __init__(self, folder: Path, rollouts: int, turns: int) -> None:
        self.folder, self.rollouts, self.turns = folder, rollouts, turns
        texts = ['<tool_call>\n{"name": "nothing", "arguments": {"x": 1}}\n</tool_call>', "Go on. slow ok"] * 50
        self.tokenizer = build_tokenizer(texts, 400, folder)
        build_model(folder, hidden=32, layers=1, heads=2, max_context=4096)
        (folder / "tools.py").write_text(TOOLS)
        (folder / "loops.yaml").write_text(
            "- name: ours\n  _target_: agentfly.backends.verl.loop.AgentFlyLoop\n  family: qwen3\n  reward: verl\n"
        )
        row = {"data_source": "none", "prompt": [{"role": "user", "content": "Go on."}], "extra_info": {"index": 0}}
        parquet.write_table(pa.Table.from_pylist([row]), folder / "data.parquet")

    def worker(self, loop: str, tool: str) -> tuple[AgentLoopWorker, InstantServer, DataProto]:
        call = f'<tool_call>\n{{"name": "{tool}", "arguments": {{"x": 1}}}}\n</tool_call><|im_end|>'
        call_ids, answer_ids = (self.tokenizer.encode(text) for text in (call, "done<|im_end|>"))
        server = InstantServer(call_ids, answer_ids, self.turns)
        place = "actor_rollout_ref.rollout"
        own = [line for line in pipeline(self.folder, self.folder / "data.parquet") if line not in CPU[-5:]]
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose(
                "ppo_trainer",
                overrides=[
                    *own,
                    "data.max_prompt_length=1024",
                    "data.max_response_length=2048",
                    f"{place}.agent.agent_loop_config_path={self.folder / 'loops.yaml'}",
                    f"{place}.agent.default_agent_loop={loop}",
                    f"{place}.multi_turn.function_tool_path={self.folder / 'tools.py'}",
                    f"{place}.multi_turn.format=hermes",
                ],
            )
        worker = AgentLoopWorker(config, server, None, None)
        rows = RLHFDataset(str(self.folder / "data.parquet"), worker.tokenizer, config.data)
        batch = DataProto.from_single_dict(collate_fn([rows[0]]))
        batch = batch.repeat(self.rollouts, interleave=True)
        batch.non_tensor_batch["uid"] = np.array([f"p{index}" for index in range(self.rollouts)], dtype=object)
        batch.meta_info["global_steps"] = 1
        return worker, server, batch


async def play(setup: Setup, loop: str, tool: str) -> tuple[int, float]:
    """Completions, and the seconds that they took."""
    worker, server, batch = setup.worker(loop, tool)
    async with closing_sessions(server):
        # Without verl's padding, which is the same for both.
        async def keep(output: Any, validate: bool, **row: Any) -> Any:
            return output

        worker._agent_loop_postprocess = keep
        worker._postprocess = lambda outputs, **more: outputs
        await worker.generate_sequences(batch[:2])  # what is loaded once is loaded
        before = server.calls
        started = time.monotonic()
        outputs = await worker.generate_sequences(batch)
        seconds = time.monotonic() - started
    calls = server.calls - before
    assert calls == setup.turns * setup.rollouts, (calls, loop)
    assert all(0 in output.response_mask for output in outputs)
    return calls, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=256)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    asyncio.set_event_loop(asyncio.new_event_loop())
    run = asyncio.get_event_loop().run_until_complete
    with tempfile.TemporaryDirectory() as scratch:
        setup = Setup(Path(scratch), options.rollouts, options.turns)
        for tool, repeats in (("nothing", options.repeats), ("slow", 1)):
            seconds: dict[str, list[float]] = {"tool_agent": [], "ours": []}
            # In turns, so that a machine that others use is as busy for both.
            for _ in range(repeats):
                for loop, taken in seconds.items():
                    calls, once = run(play(setup, loop, tool))
                    taken.append(once)
            theirs, ours = (statistics.median(taken) for taken in seconds.values())
            print(
                f"{tool:8} {options.rollouts} rollouts of {options.turns} turns: verl's tool_agent {theirs:.2f} s "
                f"({calls / theirs:.0f} turns/s), AgentFly {ours:.2f} s ({calls / ours:.0f} turns/s), "
                f"{theirs / ours:.2f} times as fast"
            )


if __name__ == "__main__":
    main()
