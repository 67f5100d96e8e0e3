"""Optional Ray support: a local instance, or an existing cluster at an address."""

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
"""Environment variables that Ray reads on import: no usage statistics, logs to files only, no automatic restart of a
lost instance.
"""
RAY_LOOPBACK_ENV = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Additional variables for a local instance: all ports are bound to the loopback interface."""
CONNECT_TIMEOUT_S = 10.0  # time limit for a connection to the cluster's address
OBJECT_STORE_BYTES = 128 << 20  # size of the object store of a local instance


@contextmanager
def connect_ray(config_key: str, address: str | None, num_cpus: int) -> Iterator[Any]:
    """Connect to Ray: the instance already used by this process, the cluster at the address, or a new local instance.

    Yields the `ray` module; a new local instance has `num_cpus` and is shut down on exit. `config_key` is the key that
    needs Ray. Raises `UserError` if Ray is not installed or the cluster cannot be reached.
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
    """Raise `UserError` if a local Ray instance would listen on the network."""
    if ray.util.get_node_ip_address() not in ("127.0.0.1", "::1"):
        raise UserError(
            f"Ray was imported before {config_key} could keep its ports to this machine: import it later, set "
            f"{' '.join(f'{name}={value}' for name, value in RAY_LOOPBACK_ENV.items())}, or call ray.init() yourself"
        )


def check_reachable(address: str) -> None:
    """Raise `UserError` if nothing listens at host:port; Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise unreachable_error(address, error) from None


def unreachable_error(address: str, error: Exception) -> UserError:
    """Return the error for a cluster that cannot be reached."""
    return UserError(
        f"no Ray cluster is reached at address={address} ({error}); a cluster with authentication needs "
        "RAY_AUTH_MODE=token in the environment and the token in ~/.ray/auth_token"
    )


def import_ray_module(config_key: str, name: str, env_vars: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Import a module of Ray with these environment variables, unless set. `UserError` if Ray is not installed."""
    for variable, value in env_vars.items():
        os.environ.setdefault(variable, value)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f"{config_key} needs Ray, an optional package: pip install 'embodied-rm[ray]'") from error
