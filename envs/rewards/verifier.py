"""A process that compares formulas, as a resource: its libraries may hang, and only a process can be ended."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from agentfly.errors import ConfigError
from agentfly.resources import Resource

_LONGEST_ANSWER = 2000


class SymbolicVerifier(Resource):
    """Compares mathematical expressions with `math-verify`.

    Args:
        timeout: seconds for one comparison; then the process is killed and another one started.
    """

    def __init__(self, timeout: float = 10.0) -> None:
        self._timeout = timeout
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process.

        Raises:
            ConfigError: math-verify isn't installed.
        """
        if find_spec("math_verify") is None:
            raise ConfigError("symbolic rewards need math-verify: pip install agentfly-rl[math]")
        await self._ask({"said": "1", "answers": ["1"]}, timeout=60.0)

    async def equal(self, said: str, answers: Sequence[str]) -> bool | None:
        """Whether an answer means the same as one of several; None when that took too long to find out."""
        if len(said) > _LONGEST_ANSWER:
            return False
        async with self._turn:
            return await self._ask({"said": said, "answers": list(answers)}, timeout=self._timeout)

    async def stop(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._process = None

    async def _ask(self, question: dict[str, object], *, timeout: float) -> bool | None:
        try:
            async with asyncio.timeout(timeout):
                process = await self._running()
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(json.dumps(question).encode() + b"\n")
                line = await process.stdout.readline()
        except (TimeoutError, OSError):
            await self.stop()
            return None
        except BaseException:
            await self.stop()  # its answer would be taken for that to the next question
            raise
        if not line:  # it died: out of memory, or a crash below Python
            await self.stop()
            return None
        return bool(json.loads(line))

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "agentfly.envs.rewards.verifier_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        return self._process
