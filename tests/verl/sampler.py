"""verl's replay buffer, by its own hook for custom ones; it writes down every row that is trained on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

_FIELDS = ["prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores", "num_turns"]


class WatchingBuffer(ReplayBuffer):
    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict]:
        batch, metrics = super().sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        data = tq.kv_batch_get(keys=batch.keys, partition_id=partition_id, select_fields=_FIELDS)
        with Path(os.environ["ROWS"]).open("a") as file:
            for index, key in enumerate(batch.keys):
                row = {name: _plain(data[name][index]) for name in _FIELDS}
                file.write(json.dumps({"step": global_steps, "partition": partition_id, "key": key, **row}) + "\n")
        return batch, metrics


def _plain(value: Any) -> Any:
    value = getattr(value, "data", value) if not hasattr(value, "tolist") else value
    return value.tolist() if hasattr(value, "tolist") else value
