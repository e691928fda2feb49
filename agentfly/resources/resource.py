"""What a pool is made of."""

from __future__ import annotations


class Resource:
    """Base of everything that a pool lends out: sandboxes, environments, engines, clients of an API.

    An ordinary class; nothing in it knows of Ray. All its methods run in the pool's host process. Methods of a
    leased resource are called through a proxy: coroutines, plain functions (in a thread) and asynchronous
    generators (streamed). The five below are the pool's; each may be overridden. A subclass's `setup` names the
    keyword arguments that it takes.
    """

    async def start(self) -> None:
        """Once, before the first lease. Raising here counts as a failed start."""

    async def setup(self) -> None:
        """Once for each lease, before its first call, with what the acquiring tool passed."""

    async def reset(self) -> None:
        """Between two leases, off their path: whatever the last one left is gone after this.

        Raising here retires the resource; another is started in its place.
        """

    async def stop(self) -> None:
        """Once, at the end. Nothing may be left running."""

    async def healthy(self) -> bool:
        """Whether it can go on serving; asked between leases."""
        return True
