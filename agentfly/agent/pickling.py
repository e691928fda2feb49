"""How tools and rewards travel to other processes."""

from __future__ import annotations

import copyreg
import dataclasses
import sys
from typing import Any, get_args, get_type_hints

from ray import cloudpickle
from typing_extensions import is_typeddict


def by_name(thing: Any) -> str | None:
    """The qualified name under which a worker finds the object in its module; None when it must travel whole.

    A decorator's result hides the function below it, so cloudpickle would send the function whole, and with it
    every global that it uses, even when the worker can import the module.

    Args:
        thing: has `__module__` and `__qualname__`.
    """
    module = str(thing.__module__)
    packages = {module, *(module[:end] for end in range(len(module)) if module[end] == ".")}
    if module == "__main__" or packages & set(cloudpickle.list_registry_pickle_by_value()):
        return None
    found: Any = sys.modules.get(module)
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return str(thing.__qualname__) if found is thing else None


def settle_annotations(annotation: Any) -> None:
    """Replace the strings among the field types of the dataclasses and typed dictionaries in an annotation.

    A class that travels whole leaves behind the module in which its strings are names.
    """
    waiting, seen = [annotation], set[int]()
    while waiting:
        found = waiting.pop()
        waiting.extend(get_args(found))
        if id(found) in seen or not _has_field_types(found):
            continue
        seen.add(id(found))
        types = get_type_hints(found, include_extras=True)
        waiting.extend(types.values())
        if dataclasses.is_dataclass(found):
            for field in dataclasses.fields(found):
                field.type = types[field.name]
        else:
            found.__annotations__.update({name: types[name] for name in found.__annotations__})


def _has_field_types(found: Any) -> bool:
    return isinstance(found, type) and (
        dataclasses.is_dataclass(found) or is_typeddict(found) or (issubclass(found, tuple) and found is not tuple)
    )


def _as_missing(_: object) -> str:
    return "MISSING"


# A dataclass that travels whole must come out with the one MISSING that dataclasses and pydantic compare with.
copyreg.pickle(type(dataclasses.MISSING), _as_missing)
