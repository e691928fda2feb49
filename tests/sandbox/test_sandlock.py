"""The provider `sandlock`: what is its own. What it shares with the others is in the conformance tests."""

from __future__ import annotations

import random

import pytest
from sandbox.boxes import marked, running

from agentfly.errors import ConfigError
from agentfly.resources.sandbox import SandboxSpec, probe


async def test_it_shows_what_bubblewrap_hides_but_lets_nobody_touch_it() -> None:
    async with running(provider="sandlock") as box:
        assert (await box.run("ls /tmp; ls /home; ls /root; ls /etc")).stdout == ""
        assert (await box.run("cat /proc/1/environ; cat /proc/1/mem")).stdout == ""
        assert "Operation not permitted" in (await box.run("mount -t tmpfs none . || echo $?")).text.replace(
            "must be superuser to use mount", "Operation not permitted"
        )
        assert (await box.run("chmod 4755 /usr/bin/env")).exit_code != 0
        code = (
            "import socket\ntry:\n    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))"
        )
        assert (await box.run_python(f"{code}\nexcept OSError as error:\n    print('refused')")).stdout == "refused\n"


async def test_daemons_and_files_go_with_it() -> None:
    mark = f"mark-{random.getrandbits(64)}"
    async with running(provider="sandlock", env={"MARK": mark}) as box:
        await box.run("setsid sh -c 'sleep 600 &' > /dev/null 2>&1; (setsid setsid sleep 600 > /dev/null 2>&1 &)")
        assert marked(mark)
        await box.reset()
        assert not [process for process in marked(mark) if process.name() == "sleep"]
    assert marked(mark) == []


async def test_too_many_processes_are_refused() -> None:
    async with running(provider="sandlock", max_processes=10) as box:
        result = await box.run("for n in $(seq 60); do sleep 5 & done; jobs | wc -l", timeout=10)
        assert "fork" in result.stderr or result.status != "ok"


def test_it_is_told_what_it_can_not_do_and_the_doctor_tells_what_it_needs() -> None:
    for wrong, told in (
        ({"require": ["disk"]}, "can't limit disk"),
        ({"mounts": {"/x": "/usr"}}, "has no mounts"),
        ({"provider_options": {"x": 1}}, "no option 'x'"),
        ({"image": "i"}, "has no images"),
    ):
        with pytest.raises(ConfigError, match=told):
            SandboxSpec(provider="sandlock", **wrong)
    checks = {check.name: check.found for check in probe("sandlock")}
    assert (checks["Landlock"] or "").startswith("ABI ")
    assert "starts" in (checks["sandbox (sandlock)"] or "")
