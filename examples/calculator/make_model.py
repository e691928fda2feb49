"""Makes a tiny model with random weights in ./model, so that the job runs anywhere. Put your own there instead."""

import json
from pathlib import Path

from agent import agent

from agentfly.models.tiny import build_model, build_tokenizer
from agentfly.rollout.chat_format import ChatFormat

folder = Path(__file__).parent / "model"
texts = [json.dumps(tool.spec) for tool in agent.tools] * 8
texts += [f"What is {a}*{b}? {a * b}" for a in range(10, 60) for b in range(10, 60)]
tokenizer = build_tokenizer(texts, 600, folder)
build_model(folder, vocab_size=len(tokenizer))
ChatFormat.load(str(folder), family="qwen3").check()
print(f"a model of {len(tokenizer)} tokens is in {folder}")
