"""What a rollout is asked to do, and the marker that injects its fields into tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Task(Mapping[str, Any]):
    """One row of a dataset: an identity and its fields, read like a mapping.

    Attributes:
        id: unique in its dataset and stable between runs, so that a resumed job knows it again.
        fields: the row's columns. `prompt` (a string, or a list of chat messages) opens the
            conversation unless the agent builds its own opening; any other field may be asked for
            by rewards, by name, and by tools, through `FromTask`.
    """

    id: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __hash__(self) -> int:
        return hash(self.id)


class FromTask:
    """Marks a tool's parameter as a field of the task: `Annotated[str, FromTask]`.

    The parameter is filled by the rollout, never stands in the schema that the model sees, and
    can't be set by the model. `Annotated[str, FromTask("fen")]` takes the field `fen`; the bare
    class takes the field that has the parameter's name.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name: Final = name
