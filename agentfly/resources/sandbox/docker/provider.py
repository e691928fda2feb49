"""Makes sandboxes of Docker."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from agentfly.errors import ConfigError, StartFailed, first_line
from agentfly.resources.sandbox.docker.options import DockerOptions, parse_options
from agentfly.resources.sandbox.link import LinkClosed
from agentfly.resources.sandbox.owners import is_dead, machine, this_process
from agentfly.resources.sandbox.provider import Capability, Check, check_limits
from agentfly.resources.sandbox.relay.link import GRACE, open_link
from agentfly.resources.sandbox.remote import RemoteRuntime
from agentfly.resources.sandbox.settings import SandboxSettings

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

_log = logging.getLogger(__name__)
_MACHINE, _PROCESS = "agentfly.machine", "agentfly.process"
_HELD = frozenset({"memory", "cpus", "processes"})
# The engine's own first process, our program and its commands are counted too.
_OWN_PROCESSES = 16


class DockerProvider:
    """Containers without capabilities, new privileges and, unless the spec has it, a network.

    The spec's `image`, or a lease's, needs a shell and Python. What a killed process of this machine left is removed
    at the first start.
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Provider`."""
        return frozenset({"python", "isolation", "network", "mounts", "image"})

    def check(self, settings: SandboxSettings) -> None:
        """See `Provider`."""
        parse_options(settings.options)
        check_limits("docker", settings, _HELD)
        if settings.packages:
            raise ConfigError("packages: the provider 'docker' has those of its image")
        if settings.python is not None:
            raise ConfigError("python: give the provider 'docker' the option python")
        for inside in settings.mounts:
            if not inside.startswith("/") or inside.strip("/") == "":
                raise ConfigError(f"mounts: nothing can be shown at {inside!r}; give another absolute path")

    async def start(self, settings: SandboxSettings) -> RemoteRuntime:
        """See `Provider`."""
        if importlib.util.find_spec("docker") is None:
            raise ConfigError("the provider 'docker' needs its SDK: pip install 'agentfly-rl[docker]'")
        if settings.image is None:
            raise StartFailed("the provider 'docker' needs an image, of the spec or of the lease")
        from agentfly.resources.sandbox.docker.machine import FAULTS, DockerMachine

        options = parse_options(settings.options)
        making = asyncio.ensure_future(asyncio.to_thread(_make, settings, options))
        try:
            container = await asyncio.shield(making)
        except asyncio.CancelledError:
            with contextlib.suppress(*FAULTS):
                await DockerMachine(await making, options.user).kill()
            raise
        except FAULTS as error:
            raise StartFailed(f"Docker starts no container of {settings.image!r}: {first_line(error)}") from None
        held = DockerMachine(container, options.user)
        try:
            link = await open_link(held, settings, workdir=options.workdir, python=options.python)
        except BaseException as error:
            await held.kill()
            if isinstance(error, LinkClosed):
                raise StartFailed(f"the container of {settings.image!r} ended while it was started") from None
            raise
        return RemoteRuntime(held, link, settings.disk, grace=GRACE)

    def checks(self) -> list[Check]:
        """See `Provider`."""
        if importlib.util.find_spec("docker") is None:
            return [Check("docker", None, "pip install 'agentfly-rl[docker]'")]
        from agentfly.resources.sandbox.docker.machine import FAULTS

        try:
            version = str(_client(None).version()["Version"])
        except FAULTS as error:
            return [Check("docker", None, first_line(error))]
        return [Check("docker", f"engine {version}")]


def _make(settings: SandboxSettings, options: DockerOptions) -> Container:
    """A running container; blocks."""
    from docker.errors import ImageNotFound

    client = _client(options.base_url)
    _orphans(options.base_url).remove(client)
    asked = arguments(settings, options)
    try:
        container = client.containers.create(**asked)
    except ImageNotFound:
        if not options.pull:
            raise
        client.images.pull(asked["image"])
        container = client.containers.create(**asked)
    try:
        container.start()
    except BaseException:
        container.remove(force=True, v=True)
        raise
    return container


def arguments(settings: SandboxSettings, options: DockerOptions) -> dict[str, Any]:
    """What the engine is asked for. Pure but for the labels, which name this process."""
    asked: dict[str, Any] = {
        "image": settings.image,
        "entrypoint": ["tail", "-f", "/dev/null"],
        "init": True,
        "environment": dict(settings.env),
        "labels": {_MACHINE: machine(), _PROCESS: this_process()},
        "network_mode": options.network_mode if settings.network else "none",
        "mem_limit": settings.memory,
        "memswap_limit": settings.memory,
        "nano_cpus": int(settings.cpus * 1e9),
        "pids_limit": settings.max_processes + _OWN_PROCESSES,
        "cap_drop": ["ALL"],
        "cap_add": list(options.cap_add),
        "security_opt": ["no-new-privileges"],
        "volumes": {outside: {"bind": inside, "mode": "ro"} for inside, outside in settings.mounts.items()},
    }
    named = {"user": options.user, "runtime": options.runtime}
    return {**asked, **{name: value for name, value in named.items() if value is not None}}


class Orphans:
    """What killed processes left at an engine; looked for once a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False

    def remove(self, client: DockerClient) -> None:
        """Remove it, or wait until that has been done; blocks."""
        with self._lock:
            if self._done:
                return
            for found in client.containers.list(all=True, filters={"label": f"{_MACHINE}={machine()}"}):
                if is_dead(found.labels.get(_PROCESS, "")):
                    _log.warning("container %s of a process that was killed is removed", found.short_id)
                    found.remove(force=True, v=True)
            self._done = True


@cache
def _orphans(base_url: str | None) -> Orphans:
    return Orphans()


@cache
def _client(base_url: str | None) -> DockerClient:
    import docker

    return docker.from_env() if base_url is None else docker.DockerClient(base_url=base_url)
