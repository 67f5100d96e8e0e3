"""Scoring by actors of Ray: `ray.data` hands shards to a pool of them, and each writes what it scored itself."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.run import Silent
from embodied_rm.score.config import ScoreConfig
from embodied_rm.score.engines.here import cores, score_here
from embodied_rm.score.job import Job
from embodied_rm.score.shards import Shard

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_ENABLE_AUTO_CONNECT": "0"}
"""Environment, read when Ray is imported: nothing is reported to anybody, its own parts speak in its logs only, and
where a Ray is lost no other one is started in its place."""
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""The same of a Ray of our own: every port is bound to the loopback interface, as where Ray builds no clusters."""
PATIENCE_S = 10.0
"""How long somebody at the address may take to answer."""
OBJECTS = 128 << 20
"""Bytes that a Ray of our own keeps for what its actors are handed."""


def score_on_ray(job: Job, shards: Sequence[Shard]) -> Iterator[Shard]:
    """The shards as they are stored, in any order. Run folder and data are at the same place on every machine.

    Raises what an actor raises, and `UserError` without Ray, without a cluster at the address, or without room there.
    """
    by_number = {shard.number: shard for shard in shards}
    rows = [{"number": shard.number, "rows": list(shard.rows)} for shard in shards]
    with cluster(job.config) as ray:
        room = room_for(job, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        scored = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            Actor,
            fn_constructor_args=(job, Path.cwd(), int(room["num_cpus"])),
            compute=ray.data.ActorPoolStrategy(size=min(job.config.workers, len(rows))),
            **room,
        )
        for row in scored.iter_rows():
            if row["mistake"]:
                raise UserError(row["mistake"])
            yield by_number[row["number"]]


class Actor:
    """A worker: it opens the model with its first shard and scores one a call."""

    def __init__(self, job: Job, folder: Path, share: int) -> None:
        """`folder`: where the driver works, since paths may be relative to it; `share`: its processors."""
        self._job, self._folder, self._share = job, folder, share
        self._opened = False

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The number of a shard that is stored; or the user's mistake, as one sentence."""
        shard = Shard(number=int(row["number"]), rows=tuple(map(int, row["rows"])))
        try:
            self._open()
            list(score_here(self._job, [shard], Silent(), self._share))
        except UserError as mistake:
            return {"number": shard.number, "mistake": str(mistake)}
        return {"number": shard.number, "mistake": ""}

    def _open(self) -> None:
        if self._opened:
            return
        if not self._folder.is_dir():
            raise UserError(f"{self._folder} is not there on {os.uname().nodename}: all machines need the same folders")
        os.chdir(self._folder)
        scorer = self._job.opener()
        self._job, self._opened = replace(self._job, opener=lambda: scorer), True


def room_for(job: Job, nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What each actor is given of the machines' resources. Raises `UserError` when they have too few for one."""
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    if sum(cpus) < 1:
        raise UserError("the Ray cluster has no processor to give: its machines have CPU = 0")
    if job.gpus and max(node.get("GPU", 0) for node in nodes) < job.gpus:
        raise UserError("the judge is to run on a GPU (judge.device), and no machine of the Ray cluster has one")
    return {"num_cpus": cpus_each(cpus, job.config.workers), "num_gpus": job.gpus}


def cpus_each(nodes: Sequence[int], workers: int) -> int:
    """The most processors that each of so many workers can have, none of them on two machines; at least 1."""
    return max((each for each in range(1, max(nodes) + 1) if sum(cpus // each for cpus in nodes) >= workers), default=1)


@contextmanager
def cluster(config: ScoreConfig) -> Iterator[Any]:
    """Ray, connected: to the one that this process is in already, to the cluster at the address, or to one of our own
    that goes when we go. Raises `UserError` without Ray, or without a cluster."""
    if config.address is not None:
        knock(config.address)
    ray = imported(QUIET if config.address else {**QUIET, **LOOPBACK})
    if ray.is_initialized():
        yield ray
        return
    with TemporaryDirectory(prefix="ray") as folder:
        quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
        if config.address is not None:
            try:
                ray.init(address=config.address, **quiet)
            except (OSError, ValueError, RuntimeError) as fault:
                raise unreached(config.address, fault) from None
        else:
            refuse_open(ray)
            cpus = max(cores(), config.workers)
            own = {"num_cpus": cpus, "object_store_memory": OBJECTS, "include_dashboard": False, "_temp_dir": folder}
            ray.init(address="local", **own, **quiet)
        try:
            yield ray
        finally:
            ray.shutdown()


def refuse_open(ray: Any) -> None:
    """Raises `UserError` when a Ray of our own would listen to the network."""
    if ray.util.get_node_ip_address() not in ("127.0.0.1", "::1"):
        raise UserError(
            "Ray was imported before engine=ray could keep its ports to this machine: import it later, set "
            f"{' '.join(f'{name}={value}' for name, value in LOOPBACK.items())}, or call ray.init() yourself"
        )


def knock(address: str) -> None:
    """Raises `UserError` when nobody listens at host:port, where Ray would wait for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), PATIENCE_S).close()
        except OSError as fault:
            raise unreached(address, fault) from None


def unreached(address: str, fault: Exception) -> UserError:
    """The sentence for a cluster that is not there."""
    return UserError(
        f"no Ray cluster is reached at address={address} ({fault}); one that wants a token is asked with "
        "RAY_AUTH_MODE=token in the environment and its token in ~/.ray/auth_token"
    )


def imported(environment: Mapping[str, str]) -> Any:
    """`ray` and `ray.data`, imported with these variables unless somebody has set them. Raises `UserError` without."""
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # optional
        import ray.data
    except ModuleNotFoundError as fault:
        raise UserError("engine=ray needs Ray, an optional package: pip install 'embodied-rm[ray]'") from fault
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray
