"""A spec as the manager sees it: all but the resource itself, which only the host unpacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray.cloudpickle

from agentfly.resources.core.types import PoolLimits
from agentfly.resources.spec import ResourceSpec


@dataclass(frozen=True)
class SpecCard:
    """What starts a host. The manager needs none of the packages that the resource needs.

    Attributes:
        limits: for the scheduling core.
        options: of the host's Ray actor.
        placement_timeout, reset_timeout, health_timeout: see `ResourceSpec`.
        spec: the pickled `ResourceSpec`.
    """

    key: str
    limits: PoolLimits
    options: Mapping[str, Any]
    placement_timeout: float
    reset_timeout: float
    health_timeout: float
    spec: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """Of the spec."""
        return self.limits.name

    def unpack(self) -> ResourceSpec[Any]:
        """The spec, with its class."""
        spec: ResourceSpec[Any] = ray.cloudpickle.loads(self.spec)
        return spec


def card_of(spec: ResourceSpec[Any]) -> SpecCard:
    """The card of a spec."""
    return SpecCard(
        spec.key,
        spec.limits,
        spec.host_options(),
        spec.placement_timeout,
        spec.reset_timeout,
        spec.health_timeout,
        ray.cloudpickle.dumps(spec),
    )
