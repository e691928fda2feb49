"""Tests that need a cluster of several nodes run as a script in a process of their own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path


async def run_script(script: str, folder: Path, seconds: float) -> list[str]:
    """The lines that a script prints, which gets the folder of the tests as its argument."""
    tests = str(Path(__file__).parents[1])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, tests), stdout=subprocess.PIPE, cwd=folder
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), seconds)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode().splitlines()
