"""`ApiSpec`: an external API as a resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar, cast

from agentfly.resources.api.bill import ApiUsage
from agentfly.resources.api.client import LimitedClient
from agentfly.resources.api.limits import ApiLimits
from agentfly.resources.client import ResourceClient
from agentfly.resources.resource import Resource
from agentfly.resources.spec import ResourceSpec

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class ApiSpec(ResourceSpec[R]):
    """An external API, used by all rollouts of a job under limits that hold for all of them together.

    `resource` is a client class of your own: each call of one of its methods is one call of the API. One host has
    the one client, so that an API that refuses one call (429, or `RateLimited` raised) is left alone by all for as
    long as it asks. Waiting there is queueing: no time limit of a tool or a rollout runs. A lease is no more than the
    right to call; `slots` bounds how many rollouts have it, not how many calls are in progress.

    The attributes after `slots` are those of `ApiLimits`.

    Attributes:
        slots: rollouts that may hold it at once.

    Raises:
        ConfigError: a number is wrong.
    """

    slots: int = 4096
    shared: bool = field(init=False, default=True)
    min_size: int = field(init=False, default=0)
    max_size: int = field(init=False)
    spares: int = field(init=False, default=0)
    # What it has learnt and what it has cost would be gone with the host.
    idle_ttl: float | None = field(init=False, default=None)
    max_uses: int | None = field(init=False, default=None)
    max_age: float | None = field(init=False, default=None)
    concurrency: int = 8
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    burst: float = 1.0
    tokens_per_call: float = 0.0
    max_retries: int = 8
    first_backoff: float = 1.0
    max_backoff: float = 60.0
    max_retry_after: float = 600.0
    price_per_call: float = 0.0
    price_per_input_token: float = 0.0
    price_per_output_token: float = 0.0
    budget: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_size", self.slots)
        super().__post_init__()
        self.api_limits.check(f"API spec {self.name!r}")

    @property
    def api_limits(self) -> ApiLimits:
        """Its limits and prices."""
        return ApiLimits(**{item.name: getattr(self, item.name) for item in fields(ApiLimits)})

    @property
    def queues(self) -> bool:
        """Calls wait for their turn in the host."""
        return True

    def make(self) -> Resource:
        """The client, behind its limits."""
        arguments: Mapping[str, object] = self.args
        client = cast(Resource, self.resource(**arguments))
        return LimitedClient(client, self.name, self.api_limits)

    async def usage(self, client: ResourceClient) -> ApiUsage:
        """What the calls of all rollouts of a job have come to; zeros before the first.

        Args:
            client: this process's way to the pools.
        """
        usages: list[ApiUsage] = await client.broadcast(self, "api_usage")
        return usages[0] if usages else ApiUsage()
