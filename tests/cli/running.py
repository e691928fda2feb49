"""A small training job, and commands that run it as processes of their own, marked so that all they start is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from processes import left_after, marked
from rollout.tiny_tokenizer import build_folder

from agentfly.models.tiny import build_model

# In the third step the reward of a rollout hangs in a sandbox, for as long as the file `hold` is there.
AGENT = """
import os
from pathlib import Path

import agentfly as af

SANDBOX = af.SandboxSpec(slots=2)


@af.reward(timeout=None)
async def length(final_response: str, ctx: af.Context) -> float:
    if ctx.group_id.startswith("2-") and Path(os.environ["HOLD"]).exists():
        box = await ctx.acquire(SANDBOX)
        await box.run(f"exec sleep {os.environ['NAP']}", timeout=3600)
    return len(final_response) % 8 / 8


agent = af.Agent(tools=[], reward=length, prompt="count to {n}")
"""
JOB = """
agent: agent.py:agent
tasks: tasks.jsonl
model:
  path: model
  family: qwen3
  options: {threads: 1}
rollout:
  group_size: 4
  tasks_per_step: 2
  concurrency: 1
  max_tokens: 8
optimizer:
  lr: 1.0e-2
steps: 4
output: out
"""


def write_job(folder: Path, agent: str = AGENT, job: str = JOB) -> None:
    """Everything that the job needs, the model included."""
    folder.mkdir(exist_ok=True)
    (folder / "agent.py").write_text(agent)
    (folder / "job.yaml").write_text(job)
    (folder / "tasks.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(5)))
    build_folder(folder / "model")
    build_model(folder / "model", hidden=32, layers=1, heads=2)


class Command:
    """`agentfly ...` in a process group of its own, as a terminal runs it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.mark = f"agentfly-run-{uuid4().hex}"
        # Processes in a sandbox inherit no environment; this one is known by its argument.
        self.nap = f"3599.{uuid4().int % 10**12}"
        self.hold = folder / "hold"
        self._seen: set[int] = set()
        environment = {
            **os.environ,
            "AGENTFLY_RUN_MARK": self.mark,
            "HOLD": str(self.hold),
            "NAP": self.nap,
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }
        with (folder / f"{self.mark}.log").open("wb") as log:
            self.log = Path(log.name)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agentfly.cli.main", *arguments],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, seconds: float = 240) -> int:
        """The exit code."""
        deadline = time.monotonic() + seconds
        while (code := self.process.poll()) is None:
            self._seen |= marked(self.mark).keys()
            if time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"still running after {seconds} seconds: {self.told}")
            time.sleep(0.1)
        return code

    @property
    def told(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(errors="replace")

    def napping(self) -> dict[int, str]:
        """The processes that hang in the sandbox."""
        return marked(self.nap, where="cmdline")

    def wait_until_held(self) -> None:
        """Return when a rollout hangs."""
        deadline = time.monotonic() + 240
        while not any(command.startswith("sleep") for command in self.napping().values()):
            assert self.process.poll() is None, self.told
            assert time.monotonic() < deadline, self.told
            time.sleep(0.05)
        self._seen |= marked(self.mark).keys()

    def places(self) -> list[str]:
        """Cgroups and folders that processes of this run have made for sandboxes; their names tell whose they are."""
        made = [*Path("/sys/fs/cgroup").rglob("agentfly-*"), *Path(tempfile.gettempdir()).glob("agentfly-*")]
        return [str(path) for path in made if not self._seen.isdisjoint(_numbers(path.name))]

    def places_left(self, seconds: float = 10.0) -> list[str]:
        """What is still there of the places when the time is over, or earlier when nothing is."""
        deadline = time.monotonic() + seconds
        while (left := self.places()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def left(self, seconds: float) -> dict[int, str]:
        """What still runs of it, sandboxes included, when the time is over; returns at once when nothing does."""
        return left_after(self.mark, seconds) | self.napping()


def _numbers(name: str) -> set[int]:
    return {int(part) for part in name.split("-") if part.isdigit()}
