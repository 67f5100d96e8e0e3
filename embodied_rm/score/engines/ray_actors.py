"""Scoring by Ray actors: `ray.data` distributes shards over a pool of actors, and each actor writes its own shards."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.ray_cluster import connect_ray
from embodied_rm.run_folder import NullReporter
from embodied_rm.score.job import ScoreJob, score_in_process
from embodied_rm.score.shards import Shard
from embodied_rm.threads import count_cores


def score_with_ray(job: ScoreJob, shards: Sequence[Shard]) -> Iterator[Shard]:
    """Score shards, and yield each after it is stored, in any order; `UserError` if Ray or an actor fails.

    Run folder and data must have the same paths on every machine.
    """
    shard_by_number = {shard.number: shard for shard in shards}
    rows = [{"number": shard.number, "rows": list(shard.rows)} for shard in shards]
    with connect_ray("engine=ray", job.config.ray_address, max(count_cores(), job.config.num_workers)) as ray:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        resources = actor_resources(job, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        results = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            ScoringActor,
            fn_constructor_args=(job, Path.cwd(), int(resources["num_cpus"])),
            compute=ray.data.ActorPoolStrategy(size=min(job.config.num_workers, len(rows))),
            **resources,
        )
        for result in results.iter_rows():
            if result["error"]:
                raise UserError(result["error"])
            yield shard_by_number[result["number"]]


class ScoringActor:
    """A worker. It loads the model with its first shard and scores one shard per call.

    Paths may be relative to the working directory of the driver.
    """

    def __init__(self, job: ScoreJob, working_dir: Path, num_cpus: int) -> None:
        self._job, self._working_dir, self._num_cpus = job, working_dir, num_cpus
        self._model_loaded = False

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Score a shard. Returns its number, and the message of a `UserError`, empty if there is none."""
        shard = Shard(number=int(row["number"]), rows=tuple(map(int, row["rows"])))
        try:
            self._load_model()
            list(score_in_process(self._job, [shard], NullReporter(), self._num_cpus))
        except UserError as error:
            return {"number": shard.number, "error": str(error)}
        return {"number": shard.number, "error": ""}

    def _load_model(self) -> None:
        if self._model_loaded:
            return
        if not self._working_dir.is_dir():
            node = os.uname().nodename
            raise UserError(f"{self._working_dir} does not exist on {node}: all machines need the same folders")
        os.chdir(self._working_dir)
        scorer = self._job.scorer_factory()
        self._job = replace(self._job, scorer_factory=lambda: scorer)
        self._model_loaded = True


def actor_resources(job: ScoreJob, nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the resources of each actor; raise `UserError` if the cluster has too few for one."""
    node_cpus = [int(node.get("CPU", 0)) for node in nodes]
    if sum(node_cpus) < 1:
        raise UserError("the Ray cluster has no processors: its machines have CPU = 0")
    if job.num_gpus and max(node.get("GPU", 0) for node in nodes) < job.num_gpus:
        raise UserError("the judge needs a GPU (judge.device), but no machine of the Ray cluster has one")
    return {"num_cpus": cpus_per_worker(node_cpus, job.config.num_workers), "num_gpus": job.num_gpus}


def cpus_per_worker(node_cpus: Sequence[int], num_workers: int) -> int:
    """Return the maximum number of processors per worker such that no worker spans two machines; at least 1."""
    counts = range(1, max(node_cpus) + 1)
    return max((n for n in counts if sum(cpus // n for cpus in node_cpus) >= num_workers), default=1)
