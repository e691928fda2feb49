"""How tools and rewards travel to other processes."""

from __future__ import annotations

import copyreg
import dataclasses
import sys
from typing import Any

from ray import cloudpickle


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


def _as_missing(_: object) -> str:
    return "MISSING"


# A dataclass that travels whole must come out with the one MISSING that dataclasses and pydantic compare with.
copyreg.pickle(type(dataclasses.MISSING), _as_missing)
