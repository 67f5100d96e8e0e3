"""All engines write the same bytes."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
from score_corpus import (
    NUM_EPISODES,
    kill_worker,
    open_flaky,
    open_net,
    raise_user_error,
    run_score,
    save_net,
    write_corpus,
)

from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.errors import UserError
from embodied_rm.ray_cluster import connect_ray
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import TABLE_FILE, ScoreConfig, score, score_corpus
from embodied_rm.score.engines.ray_actors import actor_resources, count_actors, cpus_per_worker
from embodied_rm.score.job import ScoreJob, num_torch_threads
from embodied_rm.score.shards import SHARDS_DIR
from embodied_rm.threads import torch_threads

ENGINE_SETTINGS = {
    "two processes": {"num_workers": 2},
    "two actors of Ray": {"engine": "ray", "num_workers": 2},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> LeRobotDataset:
    return LeRobotDataset(write_corpus(tmp_path_factory.mktemp("corpus") / "data"))


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_net(tmp_path_factory.mktemp("net") / "net")


@pytest.fixture(autouse=True)
def python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ray actors import the helpers of the tests."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.mark.parametrize("engine", ENGINE_SETTINGS)
def test_output_equals_that_of_one_process(
    engine: str, data: LeRobotDataset, net: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also the counts of unscored frames, with videos, and after a resume with another engine."""
    single = run_score(open_flaky, net, data, tmp_path / "one")
    parallel = run_score(open_flaky, net, data, tmp_path / "shared", videos=True, **ENGINE_SETTINGS[engine])
    assert (tmp_path / "shared" / TABLE_FILE).read_bytes() == (tmp_path / "one" / TABLE_FILE).read_bytes()
    assert parallel.num_unscored == single.num_unscored and list(parallel.predictions) == list(range(NUM_EPISODES))
    assert len(list((tmp_path / "shared").glob("episodes/*.mp4"))) == NUM_EPISODES
    assert "Traceback" not in capfd.readouterr().err
    next((tmp_path / "shared" / SHARDS_DIR).glob("00001*")).unlink()
    run_score(
        open_flaky,
        net,
        data,
        tmp_path / "shared",
        videos=True,
        **{**ENGINE_SETTINGS[engine], "engine": "local", "num_workers": 1},
    )
    assert (tmp_path / "shared" / TABLE_FILE).read_bytes() == (tmp_path / "one" / TABLE_FILE).read_bytes()


def test_user_error_of_a_worker_is_raised(data: LeRobotDataset, net: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not found by the test"):
        run_score(raise_user_error, net, data, tmp_path, num_workers=2)


def descendants(ancestor: int) -> set[int]:
    """Return the ids of all child processes, recursively."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that just ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family = {ancestor}
    while children := {child for child, parent in parents.items() if parent in family} - family:
        family |= children
    return family - {ancestor}


def listening_addresses(pids: set[int]) -> set[str]:
    """Return the hexadecimal addresses at which processes listen for connections."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            sockets |= {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return {row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def test_own_ray_instance_is_local_sends_no_usage_statistics_and_is_stopped(
    data: LeRobotDataset, net: Path, tmp_path: Path
) -> None:
    """A `UserError` in an actor is raised, also with an existing Ray instance."""
    before = descendants(os.getpid())
    with connect_ray("engine=ray", None, 2) as ray:
        addresses = listening_addresses(descendants(os.getpid()) - before | {os.getpid()})
        assert addresses and addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
        assert not import_module("ray._common.usage.usage_lib").usage_stats_enabled()
        with pytest.raises(UserError, match="not found by the test"):
            run_score(raise_user_error, net, data, tmp_path, engine="ray")
        folder = Path(import_module("ray._private.worker").global_worker.node.get_session_dir_path())
        assert ray.is_initialized() and folder.exists()
    assert not ray.is_initialized() and descendants(os.getpid()) <= before
    assert not folder.exists()
    with pytest.raises(Exception, match="Ray"):
        ray.nodes()
    assert not ray.is_initialized(), "it is not started again"


@pytest.mark.parametrize(("engine", "reason"), [("local", "killed by signal 9"), ("ray", "a Ray actor ended")])
def test_killed_worker_is_reported(data: LeRobotDataset, net: Path, tmp_path: Path, engine: str, reason: str) -> None:
    with pytest.raises(UserError, match=rf"(?s){reason}.*resume=true.*fewer workers"):
        run_score(kill_worker, net, data, tmp_path, engine=engine, num_workers=2)


def test_invalid_settings_are_rejected(
    data: LeRobotDataset, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"unknown engine 'rai'. Did you mean 'ray'\?"):
        ScoreConfig(engine="rai")
    with pytest.raises(UserError, match="num_workers must be >= 1, got 0"):
        ScoreConfig(num_workers=0)
    with pytest.raises(UserError, match="ray_address=auto needs engine=ray"):
        ScoreConfig(ray_address="auto")
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(UserError, match="use score_corpus for other engines"):
        score(open_net(net).model, data, ScoreConfig(num_workers=2), run, NullReporter())
    with pytest.raises(UserError, match=r"no Ray cluster is reached at address=127\.0\.0\.1:1"):
        ray = ScoreConfig(engine="ray", ray_address="127.0.0.1:1")
        score_corpus(partial(open_net, net), data, ray, run, NullReporter(), {})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"engine=ray needs Ray.*embodied-rm\[ray\]"):
        run_score(open_net, net, data, tmp_path / "none", engine="ray")


@pytest.mark.parametrize(
    ("nodes", "num_workers", "expected"),
    [((2,), 1, 2), ((2,), 2, 1), ((2,), 5, 1), ((4, 4), 3, 2), ((3, 3), 2, 3), ((5, 3), 2, 3), ((64, 64), 128, 1)],
)
def test_no_worker_spans_two_machines(nodes: tuple[int, ...], num_workers: int, expected: int) -> None:
    assert cpus_per_worker(nodes, num_workers) == expected


def test_actor_resources(data: LeRobotDataset, tmp_path: Path) -> None:
    job = ScoreJob(
        scorer_factory=open,
        source=data,
        config=ScoreConfig(engine="ray", num_workers=2),
        run_dir=tmp_path,
        input_digests={},
        num_gpus=1,
    )
    nodes = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 64.0}]
    assert actor_resources(job, nodes) == {"num_cpus": 4, "num_gpus": 1}, "the second machine has no GPU"
    assert count_actors({"num_cpus": 4, "num_gpus": 1}, nodes) == 2
    assert count_actors({"num_cpus": 4, "num_gpus": 1}, [{"CPU": 64.0, "GPU": 1.0}]) == 1
    assert count_actors({"num_cpus": 3, "num_gpus": 0}, [{"CPU": 8.0}, {"CPU": 2.0}]) == 2
    with pytest.raises(UserError, match="no machine of the Ray cluster has one"):
        actor_resources(job, [{"CPU": 8.0}])
    with pytest.raises(UserError, match="no processor"):
        actor_resources(job, [{"memory": 1.0, "GPU": 1.0}])


def test_number_of_torch_threads_depends_on_the_model_and_is_restored(net: Path) -> None:
    """It affects the last bits of a sum, so `ProgressNet` always has one thread."""
    progress_net, judge = open_net(net).model, open_flaky(net).model
    assert num_torch_threads(progress_net, ScoreConfig(), 6) == 1
    assert num_torch_threads(judge, ScoreConfig(), 6) == 6
    assert num_torch_threads(progress_net, ScoreConfig(num_threads=3), 6) == 3
    assert num_torch_threads(judge, ScoreConfig(num_threads=3), 6) == 3
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
