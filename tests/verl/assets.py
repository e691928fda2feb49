"""A model that knows how the test agent talks, and a dataset in verl's form; made once, offline."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
from agentfly.backends.native.optimizer import OptimizerOptions
from agentfly.backends.native.policy import Policy
from agentfly.backends.native.sft import WarmUpOptions, encode_conversation, warm_up
from agents import agent

from agentfly.models.engine import Message
from agentfly.models.tiny import build_model, build_tokenizer
from agentfly.rollout.chat_format import ChatFormat

CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>hm</think>"
# Thoughts of earlier turns are left out, so no turn can be extended exactly: each becomes a segment of its own.
FORGETFUL = """\
{%- for m in messages %}
{%- set text = m.content %}
{%- if m.role == 'assistant' and '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}
{{- '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""


def prompt(index: int) -> str:
    return f"Number {index % 10}?"


def trace(rng: random.Random, thought: str = "") -> list[Message]:
    return [
        {"role": "user", "content": prompt(rng.randrange(10))},
        {"role": "assistant", "content": thought + CALL},
        {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": "a digit"},
        {"role": "assistant", "content": str(rng.randrange(10))},
    ]


def make_model(folder: Path, *, family: str = "qwen3", steps: int = 150) -> None:
    """A Qwen3 of a hundred thousand weights that calls `look` and then says some digit."""
    tools = [tool.spec for tool in agent.tools]
    rng = random.Random(0)
    traces = [trace(rng) for _ in range(64)]
    build_tokenizer([], 300, folder)
    plain = ChatFormat.load(str(folder), family=family)
    build_tokenizer([plain.decode(encode_conversation(plain, t, tools).ids.tolist()) for t in traces], 512, folder)
    build_model(folder, hidden=64, layers=2, heads=4, kv_heads=4, max_context=512, seed=0, rope_theta=100.0)
    chat = ChatFormat.load(str(folder), family=family)
    policy = Policy.load(folder, device="cpu")
    options = OptimizerOptions(lr=5e-3, schedule="linear", warmup_steps=10, final_fraction=0.0)
    segments = [encode_conversation(chat, one, tools) for one in traces]
    loss = warm_up(policy, segments, WarmUpOptions(steps=steps, batch_size=16, optimizer=options))
    print("warm-up ended at", loss)
    policy.model.save_pretrained(folder)


def write_dataset(file: Path, rows: int) -> None:
    """Rows as verl's users have them."""
    table = pa.Table.from_pylist(
        [
            {
                "data_source": "digits",
                "prompt": [{"role": "user", "content": prompt(index)}],
                "reward_model": {"style": "rule", "ground_truth": str(index % 10)},
                "extra_info": {"index": index, "split": "train"},
            }
            for index in range(rows)
        ]
    )
    parquet.write_table(table, file)


def write_tasks(file: Path, rows: int) -> None:
    """The same for AgentFly's own jobs."""
    lines = [json.dumps({"id": str(index), "prompt": prompt(index)}) for index in range(rows)]
    file.write_text("\n".join(lines))
