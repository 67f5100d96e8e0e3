"""Ray, for those who have it: of our own and for this machine alone, or the cluster at an address."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from embodied_rm.errors import UserError

RAY_QUIET_ENV = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_ENABLE_AUTO_CONNECT": "0"}
"""Environment, read when Ray is imported: nothing is reported to anybody, its own parts speak in its logs only, and
where a Ray is lost no other one is started in its place."""
RAY_LOOPBACK_ENV = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""The same of a Ray of our own: every port is bound to the loopback interface, as where Ray builds no clusters."""
CONNECT_TIMEOUT_S = 10.0
"""How long somebody at the address may take to answer."""
OBJECT_STORE_BYTES = 128 << 20
"""Bytes that a Ray of our own keeps for what its actors are handed."""


@contextmanager
def connect_ray(config_key: str, address: str | None, num_cpus: int) -> Iterator[Any]:
    """Ray, connected: to the one that this process is in already, to the cluster at the address, or to one of our own,
    of so many processors, that goes when we go. `wanted`: the setting that asks for it, for who lacks it.

    Raises `UserError` without Ray, or without a cluster.
    """
    if address is not None:
        check_reachable(address)
    ray = import_ray_module(config_key, "ray", RAY_QUIET_ENV if address else {**RAY_QUIET_ENV, **RAY_LOOPBACK_ENV})
    if ray.is_initialized():
        yield ray
        return
    with TemporaryDirectory(prefix="ray") as temp_dir:
        log_options = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address is not None:
            try:
                ray.init(address=address, **log_options)
            except (OSError, ValueError, RuntimeError) as error:
                raise unreachable_error(address, error) from None
        else:
            check_loopback(ray, config_key)
            local_options = {
                "num_cpus": num_cpus,
                "object_store_memory": OBJECT_STORE_BYTES,
                "include_dashboard": False,
                "_temp_dir": temp_dir,
            }
            ray.init(address="local", **local_options, **log_options)
        try:
            yield ray
        finally:
            ray.shutdown()


def check_loopback(ray: Any, config_key: str) -> None:
    """Raises `UserError` when a Ray of our own would listen to the network."""
    if ray.util.get_node_ip_address() not in ("127.0.0.1", "::1"):
        raise UserError(
            f"Ray was imported before {config_key} could keep its ports to this machine: import it later, set "
            f"{' '.join(f'{name}={value}' for name, value in RAY_LOOPBACK_ENV.items())}, or call ray.init() yourself"
        )


def check_reachable(address: str) -> None:
    """Raises `UserError` when nobody listens at host:port, where Ray would wait for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise unreachable_error(address, error) from None


def unreachable_error(address: str, error: Exception) -> UserError:
    """The sentence for a cluster that is not there."""
    return UserError(
        f"no Ray cluster is reached at address={address} ({error}); one that wants a token is asked with "
        "RAY_AUTH_MODE=token in the environment and its token in ~/.ray/auth_token"
    )


def import_ray_module(config_key: str, name: str, env_vars: Mapping[str, str] = MappingProxyType({})) -> Any:
    """A module of Ray, imported with these variables unless somebody has set them. Raises `UserError` without."""
    for variable, value in env_vars.items():
        os.environ.setdefault(variable, value)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f"{config_key} needs Ray, an optional package: pip install 'embodied-rm[ray]'") from error
