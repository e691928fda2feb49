"""`ModelSpec`: a pool of model engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agentfly.errors import ConfigError
from agentfly.models.engines import engine_arguments, engine_class
from agentfly.resources.resource import Resource
from agentfly.resources.spec import ResourceSpec


@dataclass(frozen=True, eq=False)
class ModelSpec(ResourceSpec[Any]):
    """Engines of one model: by default one host, whose engine all rollouts share.

    Give all arguments by name. `resource`, `args`, `slots`, `shared` and the sizes follow from them.

    Attributes:
        engine: `transformers`, `vllm`, `openai`, `scripted`, the name of an installed engine, or `module:Class`.
        path: the model: a Hugging Face folder for engines that load one; it also locates the tokenizer.
        family: the `renderers` family of its chat format; None finds out.
        chat_options: of that family's renderer or of the chat template, such as `{"enable_thinking": False}`.
        options: of the engine; see its class.
        max_concurrency: calls in progress on one engine; the permits of its host.
        replicas: engines, each in a host of its own.
        max_replicas: engines that the pool may grow to while calls wait; None keeps `replicas`. Give `idle_ttl` too
            for those that run empty to be given back.

    Raises:
        ConfigError: no such engine, options that it hasn't, or numbers below 1.
    """

    resource: type[Resource] = field(init=False)
    args: Mapping[str, Any] = field(init=False)
    slots: int = field(init=False)
    shared: bool = field(init=False, default=True)
    min_size: int = field(init=False)
    max_size: int = field(init=False)
    # An engine that holds weights isn't given back between two steps of a trainer.
    idle_ttl: float | None = None
    start_timeout: float = 600.0
    engine: str = "transformers"
    path: str = ""
    family: str | None = None
    chat_options: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    max_concurrency: int = 256
    replicas: int = 1
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_concurrency", "replicas"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model {self.name or self.engine!r}: {name} is {getattr(self, name)}, at least 1")
        most = self.replicas if self.max_replicas is None else self.max_replicas
        if most < self.replicas:
            raise ConfigError(f"model {self.name or self.engine!r}: max_replicas is {most}, below its replicas")
        resource = engine_class(self.engine)
        derived = {
            "resource": resource,
            "args": engine_arguments(self.engine, resource, self.path, self.options),
            "name": self.name or f"model-{self.engine}",
            "slots": self.max_concurrency,
            "min_size": self.max_concurrency * self.replicas,
            "max_size": self.max_concurrency * most,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        super().__post_init__()

    @property
    def queues(self) -> bool:
        """Whether calls wait inside the engine for an API's limits; nobody's time limit runs meanwhile."""
        return bool(self.options.get("limits"))

    @property
    def speaks(self) -> Literal["tokens", "messages"]:
        """Whether the engine is an `Engine` (tokens, trainable) or only a `ChatEngine` (messages)."""
        return "tokens" if hasattr(self.resource, "generate") else "messages"
