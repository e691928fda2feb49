"""Writes tasks.jsonl, held_out.jsonl, and a tiny model with random weights to ./model, so that the job runs anywhere.

Such a model solves nothing: put your own in its place, and tasks of your own in theirs.
"""

import json
from pathlib import Path

from agentfly.envs.swe import agent, make_tasks

from agentfly.models.tiny import build_model, build_tokenizer
from agentfly.rollout.chat_format import ChatFormat

here = Path(__file__).parent
tasks = make_tasks()
for name, some in (("held_out", tasks[::3]), ("tasks", tasks[1::3] + tasks[2::3])):
    rows = [json.dumps({"id": task.id, **task.fields}) + "\n" for task in some]
    (here / f"{name}.jsonl").write_text("".join(rows))
texts = [json.dumps(tool.spec) for tool in agent.tools] * 8 + [task["problem_statement"] for task in tasks] * 4
tokenizer = build_tokenizer(texts, 1000, here / "model")
build_model(here / "model", vocab_size=len(tokenizer), hidden=32, layers=1, max_context=8192)
ChatFormat.load(str(here / "model"), family="qwen3").check()
print(f"{len(tasks)} tasks, and a model of {len(tokenizer)} tokens in {here / 'model'}")
