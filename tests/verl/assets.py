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
from agentfly.rollout.trajectory import Segment, SegmentBuilder

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


def make_model(folder: Path, *, forgetful: bool = False, steps: int = 150) -> None:
    """A Qwen3 of a hundred thousand weights that calls `look` and then says some digit.

    Args:
        folder: gets it.
        forgetful: it thinks before it calls, and its chat template leaves earlier thoughts out.
        steps: of the warm-up.
    """
    tools = [tool.spec for tool in agent.tools]
    rng = random.Random(0)
    traces = [trace(rng, THOUGHT if forgetful else "") for _ in range(64)]
    family = "generic" if forgetful else "qwen3"
    segments = encode_in_segments if forgetful else encode_flat
    build_tokenizer([], 300, folder)
    plain = load_format(folder, family, forgetful)
    build_tokenizer([plain.decode(s.ids.tolist()) for t in traces for s in segments(plain, t, tools)], 512, folder)
    chat = load_format(folder, family, forgetful)
    build_model(folder, hidden=64, layers=2, heads=4, kv_heads=4, max_context=512, seed=0, rope_theta=100.0)
    policy = Policy.load(folder, device="cpu")
    options = OptimizerOptions(lr=5e-3, schedule="linear", warmup_steps=10, final_fraction=0.0)
    lessons = [segment for one in traces for segment in segments(chat, one, tools)]
    loss = warm_up(policy, lessons, WarmUpOptions(steps=steps, batch_size=16, optimizer=options))
    print("warm-up ended at", loss)
    policy.model.save_pretrained(folder)


def load_format(folder: Path, family: str, forgetful: bool) -> ChatFormat:
    if forgetful:
        (folder / "chat_template.jinja").write_text(FORGETFUL)
    return ChatFormat.load(str(folder), family=family)


def encode_flat(chat: ChatFormat, messages: list[Message], tools: list[dict]) -> list[Segment]:
    return [encode_conversation(chat, messages, tools)]


def encode_in_segments(chat: ChatFormat, messages: list[Message], tools: list[dict]) -> list[Segment]:
    """What a forgetful model sees: the answer follows a history that was rendered again."""
    first = encode_conversation(chat, messages[:2], tools)
    prompt = chat.render(messages[:1], tools)
    turn = chat.parse(first.ids[len(prompt) :].tolist(), tools, prompt)
    builder = SegmentBuilder()
    builder.add_context(chat.render([messages[0], turn.message, messages[2]], tools))
    answer = [*chat.encode(messages[3]["content"]), chat.stop_token_ids[0]]
    builder.add_sampled(answer, [0.0] * len(answer), [0] * len(answer))
    return [first, builder.build()]


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
