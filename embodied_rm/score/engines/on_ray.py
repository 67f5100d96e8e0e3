"""Scoring by actors of Ray: `ray.data` hands shards to a pool of them, and each writes what it scored itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_rm.cluster import cluster
from embodied_rm.errors import UserError
from embodied_rm.run import Silent
from embodied_rm.score.engines.here import cores, score_here
from embodied_rm.score.job import Job
from embodied_rm.score.shards import Shard


def score_on_ray(job: Job, shards: Sequence[Shard]) -> Iterator[Shard]:
    """The shards as they are stored, in any order. Run folder and data are at the same place on every machine.

    Raises what an actor raises, and `UserError` without Ray, without a cluster at the address, or without room there.
    """
    by_number = {shard.number: shard for shard in shards}
    rows = [{"number": shard.number, "rows": list(shard.rows)} for shard in shards]
    with cluster("engine=ray", job.config.address, max(cores(), job.config.workers)) as ray:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
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
