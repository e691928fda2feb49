"""What a pool is to be: which resource, how many, where, and for how long."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import ray.cloudpickle

from agentfly.errors import ConfigError
from agentfly.resources.core.types import PoolLimits
from agentfly.resources.resource import Resource

R = TypeVar("R")
_POSITIVE = (
    "max_waiting",
    "max_uses",
    "max_age",
    "idle_ttl",
    "health_interval",
    "health_timeout",
    "placement_timeout",
    "start_timeout",
    "setup_timeout",
    "reset_timeout",
    "acquire_timeout",
)


@dataclass(frozen=True, eq=False)
class ResourceSpec(Generic[R]):
    """One type of resource. Equal specs share one pool; any difference makes another.

    Attributes:
        resource: the class; constructed in the host as `resource(**args)`.
        args: its constructor's keyword arguments.
        name: for people: logs, metrics, errors. Defaults to the class's name.
        slots: leases that one host process carries. Exclusive: a resource for each. Shared: permits on one.
        shared: one resource in each host, used by all of its leases at once; it is not reset between them.
        min_size, max_size: slots over all hosts, kept at least and at most.
        spares: idle slots kept ready beside those in use; `auto` keeps as many as will be asked for in the time that
            a host takes to start, by the rate at which leases are asked for.
        max_waiting: requests that may queue; the next is refused with `PoolSaturated`.
        max_uses: leases after which a resource is replaced; None is no limit.
        max_age: seconds after which an idle resource is replaced; None is no limit. A shared one is replaced when
            its last lease has ended.
        idle_ttl: seconds after which a host without leases is given back, down to min_size; None keeps it.
        health_interval: seconds between two times that idle resources are asked `healthy()`; None never asks.
        health_timeout: seconds without an answer after which a host counts as dead.
        placement_timeout: seconds that Ray may take to find a place for a host, autoscaling included.
        start_timeout, setup_timeout, reset_timeout: seconds; the last holds for `stop` and `healthy` too.
        acquire_timeout: seconds to wait for a lease when the call doesn't say; None is no limit.
        start_retries: starts that may fail in a row before those who wait are told why (`StartFailed`).
        num_cpus, num_gpus, host_memory (bytes), resources, label_selector, runtime_env, spread: how Ray places a host.
    """

    resource: type[R]
    args: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    slots: int = 1
    shared: bool = False
    min_size: int = 0
    max_size: int = 64
    spares: int | Literal["auto"] = 0
    max_waiting: int = 100_000
    max_uses: int | None = None
    max_age: float | None = None
    idle_ttl: float | None = 60.0
    health_interval: float | None = 30.0
    health_timeout: float = 120.0
    placement_timeout: float = 600.0
    start_timeout: float = 120.0
    setup_timeout: float = 60.0
    reset_timeout: float = 30.0
    acquire_timeout: float | None = None
    start_retries: int = 3
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    host_memory: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    label_selector: Mapping[str, str] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    spread: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.resource.__name__)
        where = f"resource spec {self.name!r}"
        if not (isinstance(self.resource, type) and issubclass(self.resource, Resource)):
            raise ConfigError(f"{where}: {self.resource!r} is no subclass of agentfly.Resource")
        if self.slots < 1:
            raise ConfigError(f"{where}: slots is {self.slots}, it must be at least 1")
        if not 0 <= self.min_size <= self.max_size or self.max_size < 1:
            raise ConfigError(
                f"{where}: needs 0 <= min_size <= max_size and max_size >= 1, got {self.min_size} and {self.max_size}"
            )
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{where}: {name} is {value}, it must be positive (or None)")
        if isinstance(self.spares, str) and self.spares != "auto":
            raise ConfigError(f"{where}: spares is {self.spares!r}, it must be a number or 'auto'")
        for name in ("spares", "start_retries", "num_cpus", "num_gpus"):
            if getattr(self, name) != "auto" and getattr(self, name) < 0:
                raise ConfigError(f"{where}: {name} is {getattr(self, name)}, it can't be negative")

    def __getstate__(self) -> dict[str, Any]:
        # The key travels with the spec: classes and functions that can't be imported look different elsewhere.
        _ = self.key
        return self.__dict__

    @cached_property
    def key(self) -> str:
        """Digest of the whole spec; the same in every process that the spec is sent to."""
        parts = [f"{type(self).__module__}.{type(self).__qualname__}"]
        parts += [f"{item.name}={canonical(getattr(self, item.name))}" for item in fields(self)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]

    @property
    def max_hosts(self) -> int:
        """Host processes at most."""
        return math.ceil(self.max_size / self.slots)

    @property
    def limits(self) -> PoolLimits:
        """What the scheduling core must know of it."""
        own = {item.name: getattr(self, item.name) for item in fields(PoolLimits) if item.name != "resets"}
        kind: Any = self.resource
        resets = kind.reset is not Resource.reset or kind.healthy is not Resource.healthy
        return PoolLimits(**own, resets=resets)

    @property
    def queues(self) -> bool:
        """Whether calls may have to wait for their turn in the host; see `phases.queueing`."""
        return False

    def make(self) -> Resource:
        """Construct one resource; called in the host."""
        made: Any = self.resource(**self.args)
        assert isinstance(made, Resource)
        return made

    def host_options(self) -> dict[str, Any]:
        """Options of the host's Ray actor."""
        options: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if self.host_memory is not None:
            options["memory"] = self.host_memory
        for name in ("resources", "label_selector", "runtime_env"):
            if getattr(self, name):
                options[name] = dict(getattr(self, name))
        if self.spread:
            options["scheduling_strategy"] = "SPREAD"
        return options


def canonical(value: Any) -> str:
    """A text that is the same for equal values in every process, and differs for different ones."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    if isinstance(value, Mapping):
        items = sorted((canonical(key), canonical(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in items) + "}"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(canonical, value))) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(canonical, value)) + "]"
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{item.name}={canonical(getattr(value, item.name))}" for item in fields(value))
        return f"{type(value).__module__}.{type(value).__qualname__}({inner})"
    if (name := _import_name(value)) is not None:
        return name
    return hashlib.sha256(ray.cloudpickle.dumps(value)).hexdigest()


def _import_name(value: Any) -> str | None:
    """Where a class or function can be imported from; None for those that can't, such as lambdas."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module is None or name is None:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}.{name}" if found is value else None
