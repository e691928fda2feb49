"""An agent that reads a file in a sandbox and computes what it says, with the Python of the same sandbox."""

from __future__ import annotations

from typing import Annotated

from agentfly.agent import Agent, ToolResult, reward, tool
from agentfly.context import Context, FromTask
from agentfly.resources.sandbox import Sandbox, SandboxSpec

Files = Annotated[dict[str, str], FromTask("files")]

SANDBOX = SandboxSpec(name="file-math", slots=32, max_size=32, memory="512MiB", disk="1MiB", timeout=5)


async def _sandbox(ctx: Context, files: dict[str, str]) -> Sandbox:
    """The rollout's own sandbox; the first call of a rollout leases it and has the task's files written."""
    return await ctx.acquire(SANDBOX, setup={"files": files})


@tool(timeout=20, max_output=400, claims=[SANDBOX])
async def read_file(path: str, ctx: Context, files: Files) -> str | ToolResult:
    """Read a text file.

    Args:
        path: name of the file.
    """
    box = await _sandbox(ctx, files)
    try:
        return await box.read(path)
    except OSError:
        return ToolResult(f"there is no file {path}", is_error=True)


@tool(timeout=20, max_output=400, claims=[SANDBOX])
async def python(code: str, ctx: Context, files: Files) -> str | ToolResult:
    """Run Python; variables live on between calls.

    Args:
        code: a program, or an expression whose value is shown.
    """
    box = await _sandbox(ctx, files)
    result = await box.run_python(code)
    if result.error is not None:
        # A traceback would be longer than all else that this model reads.
        return ToolResult(result.error.strip().splitlines()[-1], is_error=True)
    return str(result)


@reward
def exact(final_response: str, answer: str) -> float:
    """1 for the right number and nothing else."""
    return float(final_response.strip() == answer)


agent = Agent(tools=[read_file, python], reward=exact, max_turns=3, max_tokens=48)
