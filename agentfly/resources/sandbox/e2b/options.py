"""Options of the provider `e2b`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentfly.errors import ConfigError


class E2bOptions(BaseModel):
    """What `provider_options` may hold. What isn't given comes from the environment, as the SDK reads it.

    Attributes:
        domain, api_url, sandbox_url: where the service is (`E2B_DOMAIN`, `E2B_API_URL`, `E2B_SANDBOX_URL`).
        api_key: better left to `E2B_API_KEY`, which stands in no spec.
        workdir: the workspace.
        python: the command of the Python inside.
        user: who runs code there; the template's own user when None.
        lifetime: seconds after which the service ends a sandbox that nobody has renewed; it is renewed as long as its
            process lives.
        pause_after: seconds without a call after which it is paused, to go on with the next one; None never pauses.
        rate_limit_patience: seconds that a request may be put off by the service's rate limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    domain: str | None = None
    api_url: str | None = None
    sandbox_url: str | None = None
    api_key: str | None = None
    workdir: str = Field(default="/home/user", pattern="^/")
    python: str = "python3"
    user: str | None = None
    lifetime: int = Field(default=300, ge=1)
    pause_after: float | None = Field(default=120.0, gt=0)
    rate_limit_patience: float = Field(default=60.0, ge=0)

    @property
    def service(self) -> dict[str, Any]:
        """Arguments of the SDK that say which service this is."""
        named = {name: getattr(self, name) for name in ("domain", "api_url", "sandbox_url", "api_key")}
        return {name: value for name, value in named.items() if value is not None}


def parse_options(given: Mapping[str, Any]) -> E2bOptions:
    """Options as a spec has them.

    Raises:
        ConfigError: one is wrong.
    """
    try:
        return E2bOptions.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ConfigError(f"provider_options: {name}: {first['msg'].lower()}; see docs/sandboxes.md") from None
