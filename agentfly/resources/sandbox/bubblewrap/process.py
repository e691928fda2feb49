"""The processes of one sandbox: watched, killed, and gone when that is said."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess

from agentfly.resources.sandbox.bubblewrap.cgroups import Group

_PATIENCE = 5.0


class BubblewrapTree:
    """Bubblewrap, which waits outside, and the first process inside, with which all others end.

    Args:
        outer: bubblewrap, at the head of a process group of its own.
        group: the cgroup that they are to be in.
    """

    def __init__(self, outer: subprocess.Popen[bytes], group: Group | None) -> None:
        self._outer = outer
        self._group = group
        self._inner: int | None = None  # a descriptor: ids are given to others again
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watched = os.pidfd_open(outer.pid)
        asyncio.get_running_loop().add_reader(self._watched, self._outer_ended)

    def adopt(self, pid: int) -> None:
        """Take note of the first process inside, and move both into the cgroup.

        Raises:
            OSError: they can't be moved, or have ended.
        """
        self._inner = os.pidfd_open(pid)
        if self._group is not None:
            self._group.add(self._outer.pid)
            self._group.add(pid)

    def oom_kills(self) -> int:
        """Processes that the kernel has killed because memory ran out."""
        return 0 if self._group is None else self._group.oom_kills()

    async def kill(self) -> None:
        """End all; none is left when this returns."""
        self._kill()
        # Whoever gives up waiting for this doesn't keep it from being done.
        await asyncio.shield(asyncio.ensure_future(self._kill_until_ended()))

    async def _kill_until_ended(self) -> None:
        while not self.ended.done():
            self._kill()
            await asyncio.wait([self.ended], timeout=_PATIENCE)
        if self._inner is not None:
            os.close(self._inner)
            self._inner = None
        if self._group is not None:
            self._group.kill()
            await self._group.remove()

    def _kill(self) -> None:
        if self._inner is not None:
            # Bubblewrap sees it end and ends as well. Killed itself, it would leave it to whoever adopts orphans.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
        elif not self.ended.done():
            # It is being set up. What survives this finds its socket closed, and ends before it has done anything.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._outer.pid, signal.SIGKILL)

    def _outer_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        self._outer.wait()
        if not self.ended.done():
            self.ended.set_result(None)
