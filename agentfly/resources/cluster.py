"""Joins the Ray cluster that is there, or starts one on this machine for as long as it is needed."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray._private import services

from agentfly.errors import AgentFlyError, ConfigError
from agentfly.resources.signals import keeping_signal_handlers


@contextmanager
def ray_cluster(address: str | None = None) -> Iterator[None]:
    """Have Ray in the block.

    A process that is connected to Ray already keeps its connection. Else the cluster at `address`, or at
    `RAY_ADDRESS` (which `ray job submit` sets), is joined. Without either a cluster is started here, never found
    by chance, and is gone after the block.

    Raises:
        ConfigError: nothing answers at the address.
        AgentFlyError: Ray can't be started or joined.
    """
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS")
    if address:
        _check_answers(address, "RAY_ADDRESS")
        _connect(address)
    else:
        # A private cluster on loopback needs no token file in the user's home.
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        _connect("local")
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def running_cluster(address: str | None = None) -> Iterator[str]:
    """Join a cluster that runs, to look at it, and leave it after the block; quiet.

    Args:
        address: where it is; None takes the one that Ray itself finds (`RAY_ADDRESS`, else one on this machine).

    Yields:
        Its address.

    Raises:
        ConfigError: there is none.
        AgentFlyError: it can't be joined.
    """
    try:
        # Asked for here, and not by `ray.init`, since an address may be remembered of a cluster that is gone.
        found = address or services.get_ray_address_from_environment("auto", None)
    except ConnectionError:
        raise ConfigError("no Ray cluster runs on this machine: give the address of one with --address") from None
    _check_answers(found, "--address" if address else "RAY_ADDRESS")
    _connect(found, quiet=True)
    try:
        yield found
    finally:
        ray.shutdown()


def _connect(address: str, *, quiet: bool = False) -> None:
    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR} if quiet else {}
    try:
        with keeping_signal_handlers():
            ray.init(address=address, include_dashboard=False if address == "local" else None, **quietly)
    except Exception as error:  # a bare one when the machine is too slow for Ray's patience
        ray.shutdown()
        raise AgentFlyError(f"Ray can't be used at {address!r}: {error}") from error


def _check_answers(address: str, named_by: str) -> None:
    """Ask at the port first: Ray itself takes minutes to find that nobody is there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():  # "auto" and "local" are Ray's own words
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise ConfigError(f"{named_by}: no Ray cluster answers at {address}: {error}") from None
