"""Finds the jobs that run in a Ray cluster, by the names of their managers."""

from __future__ import annotations

import re

import ray

from agentfly.errors import ConfigError
from agentfly.resources.hosting import NAMESPACE
from agentfly.resources.manager import ManagerHandle

_MANAGER = "/manager"
_SUFFIX = re.compile(r"-[0-9a-f]{8}$")


def running_jobs() -> list[str]:
    """Names of the jobs whose managers live in the cluster that this process has joined, sorted."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    names = [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]
    return sorted(name.removesuffix(_MANAGER) for name in names if name.endswith(_MANAGER))


def choose_job(jobs: list[str], wanted: str | None) -> str:
    """The job that is meant: the only one, or the one of the name, which needs no suffix if that is clear.

    Raises:
        ConfigError: there is none, or there are several.
    """
    if wanted is None:
        chosen = jobs
    else:
        chosen = [job for job in jobs if wanted == job] or [job for job in jobs if wanted == _SUFFIX.sub("", job)]
    if len(chosen) == 1:
        return chosen[0]
    if not jobs:
        raise ConfigError("no job runs in this Ray cluster")
    listed = ", ".join(chosen or jobs)
    if not chosen:
        raise ConfigError(f"there is no job {wanted!r}; the jobs are: {listed}")
    raise ConfigError(f"several jobs run, choose one with --job: {listed}")


def find_manager(wanted: str | None) -> tuple[str, ManagerHandle]:
    """A running job's name and its manager.

    Raises:
        ConfigError: there is no such job, or it has just ended.
    """
    job = choose_job(running_jobs(), wanted)
    try:
        return job, ray.get_actor(f"{job}{_MANAGER}", NAMESPACE)
    except ValueError:
        raise ConfigError(f"job {job!r} has just ended") from None
