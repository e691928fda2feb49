"""Which sandbox a rollout works in, and what lies in it at the beginning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentfly.context import Context, Task
from agentfly.errors import ConfigError
from agentfly.resources.sandbox import Sandbox, SandboxSpec

Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Workspace:
    """The sandbox of a rollout: leased by whoever asks first, the same for all tools and for the reward.

    Attributes:
        spec: the pool.
        files: the task's field with the files, by path, or a function that gives them; a task without the field
            begins with an empty folder.
        image: the task's field with the name of an image, for providers that have such; a task without the field
            takes the spec's.
        prepare: the task's field with a shell command to run at the beginning; a task without the field needs none.
    """

    spec: SandboxSpec
    files: str | Callable[[Task], Files] = "files"
    image: str = "image"
    prepare: str = "prepare"

    async def sandbox(self, ctx: Context) -> Sandbox:
        """The rollout's sandbox.

        Raises:
            ResourceError: there is none to be had.
            ConfigError: the task's files are none.
        """
        return await ctx.acquire(self.spec, setup=self.setup(ctx.task))

    def setup(self, task: Task) -> dict[str, Any]:
        """Arguments of `Sandbox.setup` for a task.

        Raises:
            ConfigError: its files are none.
        """
        setup: dict[str, Any] = {"files": self.files_of(task)}
        if task.get(self.image) is not None:
            setup["image"] = str(task[self.image])
        if task.get(self.prepare) is not None:
            setup["prepare"] = str(task[self.prepare])
        return setup

    def files_of(self, task: Task) -> Files:
        """The files that a rollout on a task begins with.

        Raises:
            ConfigError: the field holds something else.
        """
        if callable(self.files):
            return self.files(task)
        # Rows of a Parquet file have all columns of the others, with None.
        files = {} if task.get(self.files) is None else task[self.files]
        if not isinstance(files, Mapping):
            raise ConfigError(
                f"task {task.id!r}: {self.files!r} must map paths to contents, got {type(files).__name__}"
            )
        return {path: content for path, content in files.items() if content is not None}
