"""Jobs from YAML files: found, overridden, checked, with one line for each thing that is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from agentfly.errors import ConfigError
from agentfly.training.data import is_function
from agentfly.training.job import TrainingJob

# A day that doesn't exist is a ValueError, brackets in brackets without end a RecursionError.
_BAD_YAML = (yaml.YAMLError, ValueError, RecursionError)


def load_job(path: Path, overrides: Sequence[str] = ()) -> TrainingJob:
    """Read a job.

    Args:
        path: a YAML file; relative paths in it are relative to its folder.
        overrides: `key=value` pairs, keys with dots for what is inside (`optimizer.lr=3e-4`), values as in YAML.

    Raises:
        ConfigError: with a line for each problem, each beginning with its place.
    """
    document = _read(path)
    for override in overrides:
        _apply(document, override)
    try:
        job = TrainingJob.model_validate(document)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in problem_lines(error, TrainingJob))) from None
    return _resolved(job, path.resolve().parent)


def problem_lines(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line for each problem, with its place in dotted form."""
    return [_line(problem, model) for problem in error.errors()]


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}: name a job file in YAML") from None
    except _BAD_YAML as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{path}{where}: no YAML: {problem}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: a job is a mapping of keys, this is {type(document).__name__}")
    return document


class _Loader(yaml.SafeLoader):
    """Refuses a key that comes twice, where YAML in Python silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} comes twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _apply(document: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"override {override!r}: write key=value")
    try:
        value = _number(yaml.load(text, _Loader))
    except _BAD_YAML:
        raise ConfigError(f"override {override!r}: the value is no YAML") from None
    *parents, last = key.split(".")
    place = document
    for parent in parents:
        inner = place.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {parent} is a value, it has nothing inside")
        place = inner
    place[last] = value


def _number(value: Any) -> Any:
    """YAML 1.1 reads 3e-4 as text; everybody means the number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _line(problem: Mapping[str, Any], model: type[BaseModel]) -> str:
    location = [str(part) for part in problem["loc"]]
    place = ".".join(location) or "the job"
    if problem["type"] == "extra_forbidden":
        known = _keys_at(model, problem["loc"][:-1])
        close = difflib.get_close_matches(location[-1], known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the keys here are: {', '.join(known)}"
        return f"{place}: unknown key; {hint}"
    if problem["type"] == "missing":
        return f"{place}: this key is needed"
    message = problem["msg"].removeprefix("Value error, ")
    given = problem.get("input")
    shown = f" (got {given!r})" if isinstance(given, (str, int, float, bool, type(None))) else ""
    return f"{place}: {message[:1].lower()}{message[1:]}{shown}"


def _keys_at(model: type[BaseModel], location: Iterable[Any]) -> list[str]:
    for part in location:
        inner = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)


def _resolved(job: TrainingJob, folder: Path) -> TrainingJob:
    """The job with all paths absolute."""
    changes: dict[str, Any] = {"output": folder / job.output}
    if isinstance(job.agent, str):
        file, _, attribute = job.agent.rpartition(":")
        if file.endswith(".py"):
            changes["agent"] = f"{folder / file}:{attribute}"
    for name in ("tasks", "eval_tasks"):
        value = getattr(job, name)
        if isinstance(value, str) and not is_function(value):
            changes[name] = str(folder / value)
    if job.model.path and job.model.engine != "openai":
        changes["model"] = job.model.model_copy(update={"path": str(folder / job.model.path)})
    return job.model_copy(update=changes)
