"""The demo's starting point: a tiny model with a tokenizer of its own, warmed up on made conversations."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from agentfly.agent import Agent
from agentfly.backends.native.optimizer import OptimizerOptions
from agentfly.backends.native.policy import Policy
from agentfly.backends.native.sft import WarmUpOptions, encode_conversation, warm_up
from agentfly.envs.file_math.tasks import make_tasks
from agentfly.envs.file_math.traces import made_trace
from agentfly.models.tiny import build_model, build_tokenizer
from agentfly.rollout.chat_format import ChatFormat

FAMILY = "qwen3"
WARM_UP = WarmUpOptions(
    steps=220,
    batch_size=32,
    optimizer=OptimizerOptions(lr=3e-3, schedule="linear", warmup_steps=20, final_fraction=0.0),
)
_TRACES = 3000
_TRACES_FOR_THE_TOKENIZER = 600


def make_model(folder: Path, agent: Agent, seed: int, *, on_step: Callable[[int, float], None]) -> None:
    """Make a model of a quarter of a million weights in a folder.

    Args:
        folder: gets a model in Hugging Face form.
        agent: whose tools the conversations use.
        seed: of the weights and the conversations.
        on_step: is told the warm-up's steps done and its loss.
    """
    rng = random.Random(seed)
    tools = [tool.spec for tool in agent.tools]
    traces = [made_trace(task, rng) for task in make_tasks(_TRACES, seed=seed)]
    # A first tokenizer of single bytes shows what the chat format makes of the conversations; the real one is
    # trained on that, so that the tools' schemas, the same in every prompt, take a few tokens.
    build_tokenizer([], 300, folder)
    plain = ChatFormat.load(str(folder), family=FAMILY)
    texts = [
        plain.decode(encode_conversation(plain, t, tools).ids.tolist()) for t in traces[:_TRACES_FOR_THE_TOKENIZER]
    ]
    build_tokenizer(texts, 1024, folder)
    build_model(
        folder, hidden=96, layers=2, heads=4, kv_heads=4, intermediate=192, max_context=512, seed=seed, rope_theta=100.0
    )
    chat = ChatFormat.load(str(folder), family=FAMILY)
    policy = Policy.load(folder, device="cpu")
    warm_up(policy, [encode_conversation(chat, trace, tools) for trace in traces], WARM_UP, on_step=on_step)
    policy.model.save_pretrained(folder)
