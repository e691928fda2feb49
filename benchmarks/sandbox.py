"""Sandboxes beside the least that could be done: a bare `bwrap true`, a bare pipe to a Python process.

One run measures all of it in turn and prints ratios of the medians: other work on the machine then weighs on all.

    python benchmarks/sandbox.py [--rounds 40] [--together 64] [--idle 200]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psutil

from agentfly.resources.sandbox import Sandbox, SandboxSpec
from agentfly.resources.sandbox.bubblewrap.machine import bwrap_path, drop_to

ECHO = "import sys\nfor line in sys.stdin: print(eval(line), flush=True)"


def bare_bwrap() -> None:
    """A namespace of each kind, and `true` in it."""
    uid = drop_to()
    identity: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    command = [bwrap_path(), "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib"]
    command += ["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/true"]
    subprocess.run(command, check=True, env={}, cwd="/", **identity)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds."""
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


async def starts(rounds: int) -> None:
    """A cold start, a reset, and the bare binary, in turn."""
    bare, start, reset = [], [], []
    for _ in range(rounds):
        bare.append(await timed(lambda: asyncio.to_thread(bare_bwrap)))
        box = Sandbox(**SandboxSpec().args)
        start.append(await timed(box.start))
        reset.append(await timed(box.reset))
        await box.stop()
    low = statistics.median(bare)
    report("bare `bwrap true`", low)
    report("cold start to a ready interpreter", statistics.median(start), low)
    report("reset", statistics.median(reset), statistics.median(start))


async def calls(rounds: int) -> None:
    """`run_python("1")` beside a line to a Python process and back."""
    process = subprocess.Popen([sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    box = Sandbox(**SandboxSpec().args)
    await box.start()
    await box.run_python("1")
    pipe, python, shell = [], [], []
    for _ in range(rounds * 10):
        begun = time.perf_counter()
        process.stdin.write(b"1\n")
        process.stdin.flush()
        process.stdout.readline()
        pipe.append(time.perf_counter() - begun)
        python.append(await timed(lambda: box.run_python("1")))
        shell.append(await timed(lambda: box.run("true")))
    process.stdin.close()
    process.wait()
    await box.stop()
    low = statistics.median(pipe)
    report("a line to a Python process and back", low)
    report('run_python("1")', statistics.median(python), low)
    report('run("true")', statistics.median(shell), low)


async def together(count: int) -> None:
    """Many sandboxes in use at the same time."""
    boxes = [Sandbox(**SandboxSpec().args) for _ in range(count)]
    seconds = await timed(lambda: asyncio.gather(*(box.start() for box in boxes)))
    print(f"{count} started at once: {seconds:.2f} s, {count / seconds:.0f} a second")
    done = 0

    async def use(box: Sandbox) -> None:
        nonlocal done
        for number in range(20):
            assert (await box.run_python(f"{number} + 1")).value == str(number + 1)
            done += 1

    seconds = await timed(lambda: asyncio.gather(*(use(box) for box in boxes)))
    print(f"{count} in use at once: {done / seconds:.0f} calls a second")
    seconds = await timed(lambda: asyncio.gather(*(box.stop() for box in boxes)))
    print(f"{count} stopped at once: {seconds:.2f} s")


async def idle(count: int) -> None:
    """Memory of sandboxes that do nothing, what they share counted once."""
    boxes = [Sandbox(**SandboxSpec().args) for _ in range(count)]
    for box in boxes:
        await box.start()
    await asyncio.sleep(1)  # interpreters warm up
    before = psutil.cpu_times()
    await asyncio.sleep(2)
    after = psutil.cpu_times()
    tree = psutil.Process().children(recursive=True)
    own = sum(process.memory_full_info().uss for process in tree)
    proportional = sum(process.memory_full_info().pss for process in tree)
    print(
        f"{count} idle: {own / count / 1e6:.1f} MB each of their own, {proportional / count / 1e6:.1f} MB with their "
        f"part of what is shared; {len(tree) / count:.1f} processes each; "
        f"machine busy {1 - (after.idle - before.idle) / (2 * psutil.cpu_count()):.0%}"
    )
    await asyncio.gather(*(box.stop() for box in boxes))


def report(name: str, seconds: float, of: float | None = None) -> None:
    """A line."""
    ratio = "" if of is None else f"   {seconds / of:.2f} times the one above that it is measured by"
    print(f"{name:40} {seconds * 1e3:9.3f} ms{ratio}")


async def main(rounds: int, at_once: int, resting: int) -> None:
    """All of them."""
    await starts(rounds)
    await calls(rounds)
    await together(at_once)
    await idle(resting)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--together", type=int, default=64)
    parser.add_argument("--idle", type=int, default=200)
    options = parser.parse_args()
    asyncio.run(main(options.rounds, options.together, options.idle))
