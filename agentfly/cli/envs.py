"""`agentfly envs`."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentfly.envs.catalogue import CATALOGUE, verdict
from agentfly.envs.listing import Entry


def run_envs(*, as_json: bool) -> None:
    """Print the list."""
    if as_json:
        print(json.dumps([_row(entry) for entry in CATALOGUE]))  # noqa: T201
        return
    table = Table("environment", "what", "size", "licence", "needs", "runs here")
    for entry in CATALOGUE:
        found = verdict(entry)
        here = Text("yes", "green") if found.runs else Text(f"no: {found.advice}", "yellow")
        table.add_row(entry.name, entry.what, _size(entry), entry.licence, _needs(entry), here)
    Console().print(table)


def _row(entry: Entry) -> dict[str, object]:
    found = verdict(entry)
    return {
        "name": entry.name,
        "what": entry.what,
        "size": entry.size,
        "licence": entry.licence,
        "needs": _needs(entry),
        "data": entry.data,
        "agent": entry.agent,
        "tasks": entry.tasks,
        "runs_here": found.runs,
        "missing": list(found.missing),
        "advice": found.advice,
    }


def _size(entry: Entry) -> str:
    return f"{entry.size}; more: {entry.data}" if entry.data else entry.size


def _needs(entry: Entry) -> str:
    return ", ".join([*entry.modules, *entry.programs]) or "nothing more"
