"""Starts two sandboxes with daemons in them and waits to be killed; its argument marks them."""

from __future__ import annotations

import asyncio
import sys

from agentfly.resources.sandbox import Sandbox, SandboxSpec


async def main() -> None:
    boxes = [Sandbox(**SandboxSpec(env={"MARK": sys.argv[1]}).args) for _ in range(2)]
    for box in boxes:
        await box.start()
        await box.run("setsid sh -c 'sleep 600 &' > /dev/null 2>&1")
    print("up", flush=True)
    await asyncio.sleep(600)


asyncio.run(main())
