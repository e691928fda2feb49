"""Options of the provider `docker`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentfly.errors import ConfigError


class DockerOptions(BaseModel):
    """What `provider_options` may hold.

    Attributes:
        base_url: of the engine; None takes `DOCKER_HOST`, or the usual socket.
        workdir: the workspace; for images of repositories, the folder that the repository is in.
        python: the command of the Python inside.
        user: who runs code there; the image's own user when None.
        runtime: of the engine, such as `runsc` for gVisor.
        network_mode: of sandboxes whose spec has `network`.
        cap_add: capabilities that are left; all others are dropped.
        pull: whether an image that isn't there is fetched.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str | None = None
    workdir: str = Field(default="/workspace", pattern="^/")
    python: str = "python3"
    user: str | None = None
    runtime: str | None = None
    network_mode: str = "bridge"
    cap_add: tuple[str, ...] = ()
    pull: bool = True


def parse_options(given: Mapping[str, Any]) -> DockerOptions:
    """Options as a spec has them.

    Raises:
        ConfigError: one is wrong.
    """
    try:
        return DockerOptions.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ConfigError(f"provider_options: {name}: {first['msg'].lower()}; see docs/sandboxes.md") from None
