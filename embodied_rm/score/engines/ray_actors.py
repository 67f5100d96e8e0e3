"""Scoring by a pool of Ray actors; each writes its own shards."""

import os
from collections import deque
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

RETRIES = {"max_restarts": 1, "max_task_retries": 1}
"""An actor that is lost, as with its machine, starts again once, and scores its shard again."""

MAX_WAIT_S = 1.0  # seconds until signals are handled


def score_with_ray(job: ScoreJob, shards: Sequence[Shard]) -> Iterator[Shard]:
    """Score shards, and yield each after it is stored, in any order; `UserError` if Ray or an actor fails.

    Run folder and data must have the same paths on every machine.
    """
    shard_by_number = {shard.number: shard for shard in shards}
    with connect_ray("engine=ray", job.config.ray_address, max(count_cores(), job.config.num_workers)) as ray:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        resources = actor_resources(job, nodes)
        num_actors = min(job.config.num_workers, len(shards), count_actors(resources, nodes))
        actor_class = ray.remote(**resources, **RETRIES)(ScoringActor)
        actors = [actor_class.remote(job, Path.cwd(), int(resources["num_cpus"])) for _ in range(num_actors)]
        try:
            for number, error in score_shards(ray, actors, shards):
                if error:
                    raise UserError(error)
                yield shard_by_number[number]
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
            raise UserError(
                f"a Ray actor ended ({first_line(error)}). Finished episodes are kept: continue with resume=true, and "
                "fewer workers if memory was short"
            ) from None
        finally:
            for actor in actors:
                ray.kill(actor)


def score_shards(ray: Any, actors: Sequence[Any], shards: Sequence[Shard]) -> Iterator[tuple[int, str]]:
    """Yield the results of actors in any order, see `ScoringActor.score`.

    `ActorPool` of Ray waits without a limit, and Ray calls no handlers of signals while it waits.
    """
    idle, waiting, busy = list(actors), deque(shards), dict[Any, Any]()
    while waiting or busy:
        while idle and waiting:
            actor = idle.pop()
            busy[actor.score.remote(waiting.popleft())] = actor
        done, _ = ray.wait(list(busy), timeout=MAX_WAIT_S)
        for result in done:
            idle.append(busy.pop(result))
            yield ray.get(result)


def first_line(error: Exception) -> str:
    """Return the first line of an error message."""
    return str(error).strip().partition("\n")[0]


class ScoringActor:
    """A worker. It loads the model with its first shard and scores one shard per call.

    Paths may be relative to the working directory of the driver.
    """

    def __init__(self, job: ScoreJob, working_dir: Path, num_cpus: int) -> None:
        self._job, self._working_dir, self._num_cpus = job, working_dir, num_cpus
        self._model_loaded = False

    def score(self, shard: Shard) -> tuple[int, str]:
        """Score a shard. Returns its number, and the message of a `UserError`, empty if there is none."""
        try:
            self._load_model()
            list(score_in_process(self._job, [shard], NullReporter(), self._num_cpus))
        except UserError as error:
            return shard.number, str(error)
        return shard.number, ""

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
    if job.num_gpus and max(node.get("GPU", 0) for node in nodes) < job.num_gpus:
        raise UserError("the judge needs a GPU (judge.device), but no machine of the Ray cluster has one")
    node_cpus = [int(node.get("CPU", 0)) for node in nodes if node.get("GPU", 0) >= job.num_gpus]
    if sum(node_cpus) < 1:
        raise UserError("the Ray cluster has no processors: its machines have CPU = 0")
    return {"num_cpus": cpus_per_worker(node_cpus, job.config.num_workers), "num_gpus": job.num_gpus}


def count_actors(resources: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> int:
    """Return how many actors the machines have room for. An actor without room would wait forever."""
    needed = {"CPU": resources["num_cpus"], "GPU": resources["num_gpus"]}
    return sum(min(int(node.get(name, 0) // need) for name, need in needed.items() if need) for node in nodes)


def cpus_per_worker(node_cpus: Sequence[int], num_workers: int) -> int:
    """Return the maximum number of processors per worker such that no worker spans two machines; at least 1."""
    counts = range(1, max(node_cpus) + 1)
    return max((n for n in counts if sum(cpus // n for cpus in node_cpus) >= num_workers), default=1)
