"""Rows of public datasets as tasks. Each names an image that holds its repository: so it needs `docker`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from agentfly.envs.sandbox_tools.testing import defined_tests

from agentfly.context import Task
from agentfly.errors import ConfigError

# Where the images of these datasets have the Python that has their packages.
_CONDA = "/opt/miniconda3/envs/testbed/bin/python"
_VENV = "/testbed/.venv/bin/python"
_R2E_TESTS = "r2e_tests"


def swe_bench_task(row: Mapping[str, Any], *, images: str = "swebench/sweb.eval.x86_64.{name}:latest") -> Task:
    """A row of SWE-bench, its Lite and Verified parts, SWE-Gym and others of their form.

    Args:
        row: with `instance_id`, `problem_statement`, `test_patch`, `FAIL_TO_PASS`, `PASS_TO_PASS`; and `image_name` or
            `docker_image`, if the set names its images.
        images: else their names; `{name}` is the id as the official images write it.

    Raises:
        ConfigError: a column is missing, or the repository's tests aren't pytest's.
    """
    name = _column(row, "instance_id")
    image = row.get("image_name") or row.get("docker_image")
    fields = _common(row, image or images.format(name=name.replace("__", "_1776_").lower()), _CONDA)
    return Task(name, {**fields, "test_patch": _column(row, "test_patch"), "solution_patch": row.get("patch")})


def swe_smith_task(row: Mapping[str, Any]) -> Task:
    """A row of SWE-smith: the mistake is on a branch of the image's repository, the tests on the commit before.

    Raises:
        ConfigError: a column is missing.
    """
    name = _column(row, "instance_id")
    fields = _common(row, _column(row, "image_name"), _CONDA)
    prepare = f"git checkout -q {shlex.quote(name)}"
    return Task(name, {**fields, "prepare": prepare, "tests_from": "HEAD~1"})


def r2e_gym_task(row: Mapping[str, Any]) -> Task:
    """A row of R2E-Gym: its tests come with the row, and are taken out of the image before the rollout begins.

    Raises:
        ConfigError: a column is missing or isn't as it should be.
    """
    name = f"{_column(row, 'repo_name')}-{_column(row, 'commit_hash')[:12]}"
    run, expected = (_parsed(row, column) for column in ("execution_result_content", "expected_output_json"))
    try:
        files = dict(zip(run["test_file_names"], run["test_file_codes"], strict=True))
        passing = [test for test, outcome in expected.items() if outcome == "PASSED"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"row {name!r}: its tests are not as R2E-Gym writes them: {error!r}") from None
    tests = {f"{_R2E_TESTS}/{file}": code for file, code in files.items()}
    ids = {test: place for path, code in tests.items() for place in defined_tests(path, code) for test in _short(place)}
    fields = {
        "problem_statement": _column(row, "problem_statement"),
        "image": _column(row, "docker_image"),
        "python": _VENV,
        "prepare": f"rm -rf {_R2E_TESTS} /{_R2E_TESTS} /root/{_R2E_TESTS} run_tests.sh",
        "test_files": tests,
        "fail_to_pass": [ids[test] for test in passing if test in ids],
        "pass_to_pass": [],
    }
    return Task(name, fields)


def _common(row: Mapping[str, Any], image: str, python: str) -> dict[str, Any]:
    return {
        "problem_statement": _column(row, "problem_statement"),
        "image": image,
        "python": python,
        "test_files": {},
        "fail_to_pass": _tests(row, "FAIL_TO_PASS"),
        "pass_to_pass": _tests(row, "PASS_TO_PASS"),
    }


def _tests(row: Mapping[str, Any], column: str) -> list[str]:
    if column not in row:
        raise _lacks(row, column)
    tests = json.loads(row[column]) if isinstance(row[column], str) else list(row[column])
    other = next((test for test in tests if "::" not in test), None)
    if other is not None:
        raise ConfigError(f"row {row.get('instance_id')!r}: {column} holds {other!r}, which is no test of pytest's")
    return [str(test) for test in tests]


def _short(place: str) -> Sequence[str]:
    """A test as R2E-Gym names it: with its class, joined by a dot, without its file."""
    return [".".join(place.split("::")[1:])]


def _parsed(row: Mapping[str, Any], column: str) -> Any:
    value = row.get(column)
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ConfigError(f"column {column!r} is no JSON: {error}") from None


def _column(row: Mapping[str, Any], column: str) -> str:
    if not row.get(column):
        raise _lacks(row, column)
    return str(row[column])


def _lacks(row: Mapping[str, Any], column: str) -> ConfigError:
    return ConfigError(f"row {row.get('instance_id', '')!r} has no {column!r}; its columns are: {', '.join(row)}")
