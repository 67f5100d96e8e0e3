"""Whoever does the work, the bytes are the same."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
from score_corpus import COUNT, open_killed, open_mistaken, open_net, open_picky, save_net, scored_by, write_corpus

from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.errors import UserError
from embodied_rm.ray_cluster import connect_ray
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import TABLE_FILE, ScoreConfig, score, score_corpus
from embodied_rm.score.engines.in_process import num_torch_threads, torch_thread_count
from embodied_rm.score.engines.ray_actors import actor_resources, cpus_per_worker
from embodied_rm.score.job import ScoreJob
from embodied_rm.score.shards import SHARDS_DIR

KINDS = {
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
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors of Ray import what they are handed, here the helpers of this folder."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_are_those_of_one_process(
    kind: str, data: LeRobotDataset, net: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The counts of what a judge leaves unscored too; with images; and whoever goes on."""
    one = scored_by(open_picky, net, data, tmp_path / "one")
    shared = scored_by(open_picky, net, data, tmp_path / "shared", videos=True, **KINDS[kind])
    assert (tmp_path / "shared" / TABLE_FILE).read_bytes() == (tmp_path / "one" / TABLE_FILE).read_bytes()
    assert shared.num_unscored == one.num_unscored and list(shared.predictions) == list(range(COUNT))
    assert len(list((tmp_path / "shared").glob("*.mp4"))) == COUNT
    assert "Traceback" not in capfd.readouterr().err
    next((tmp_path / "shared" / SHARDS_DIR).glob("00001*")).unlink()
    scored_by(
        open_picky, net, data, tmp_path / "shared", videos=True, **{**KINDS[kind], "engine": "local", "num_workers": 1}
    )
    assert (tmp_path / "shared" / TABLE_FILE).read_bytes() == (tmp_path / "one" / TABLE_FILE).read_bytes()


def test_a_mistake_that_a_worker_meets_is_told_as_it_is_here(data: LeRobotDataset, net: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is nowhere to be found"):
        scored_by(open_mistaken, net, data, tmp_path, num_workers=2)


def descendants(of: int) -> set[int]:
    """The processes that this one has started, those that they have, and so on."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # one that has just ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {of}
    while young := {child for child, parent in parents.items() if parent in found} - found:
        found |= young
    return found - {of}


def listening(pids: set[int]) -> set[str]:
    """The addresses, in hexadecimal, at which processes wait for connections."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            sockets |= {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return {row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def test_a_ray_of_our_own_listens_to_this_machine_only_reports_to_nobody_and_goes_when_we_go(
    data: LeRobotDataset, net: Path, tmp_path: Path
) -> None:
    """And is told a mistake that an actor meets, as a Ray that is there already is."""
    before = descendants(os.getpid())
    with connect_ray("engine=ray", None, 2) as ray:
        addresses = listening(descendants(os.getpid()) - before | {os.getpid()})
        assert addresses and addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
        assert not import_module("ray._common.usage.usage_lib").usage_stats_enabled()
        with pytest.raises(UserError, match="is nowhere to be found"):
            scored_by(open_mistaken, net, data, tmp_path, engine="ray")
        folder = Path(import_module("ray._private.worker").global_worker.node.get_session_dir_path())
        assert ray.is_initialized() and folder.exists()
    assert not ray.is_initialized() and descendants(os.getpid()) <= before
    assert not folder.exists()
    with pytest.raises(Exception, match="Ray"):
        ray.nodes()
    assert not ray.is_initialized(), "nor does it come back"


def test_a_worker_that_is_killed_is_told(data: LeRobotDataset, net: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"killed by signal 9.*resume=true and fewer workers"):
        scored_by(open_killed, net, data, tmp_path, num_workers=2)


def test_mistakes(data: LeRobotDataset, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"unknown engine 'rai'. Did you mean 'ray'\?"):
        ScoreConfig(engine="rai")
    with pytest.raises(UserError, match="num_workers must be >= 1, got 0"):
        ScoreConfig(num_workers=0)
    with pytest.raises(UserError, match="ray_address=auto is of a Ray cluster: it needs engine=ray"):
        ScoreConfig(ray_address="auto")
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(UserError, match="score_corpus is for other engines"):
        score(open_net(net).model, data, ScoreConfig(num_workers=2), run, NullReporter())
    with pytest.raises(UserError, match=r"no Ray cluster is reached at address=127\.0\.0\.1:1"):
        ray = ScoreConfig(engine="ray", ray_address="127.0.0.1:1")
        score_corpus(partial(open_net, net), data, ray, run, NullReporter(), {})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"engine=ray needs Ray.*embodied-rm\[ray\]"):
        scored_by(open_net, net, data, tmp_path / "none", engine="ray")


@pytest.mark.parametrize(
    ("nodes", "workers", "each"),
    [((2,), 1, 2), ((2,), 2, 1), ((2,), 5, 1), ((4, 4), 3, 2), ((3, 3), 2, 3), ((5, 3), 2, 3), ((64, 64), 128, 1)],
)
def test_processors_are_shared_so_that_every_worker_finds_room_on_one_machine(
    nodes: tuple[int, ...], workers: int, each: int
) -> None:
    assert cpus_per_worker(nodes, workers) == each


def test_room_on_a_cluster(data: LeRobotDataset, tmp_path: Path) -> None:
    job = ScoreJob(
        scorer_factory=open,
        source=data,
        config=ScoreConfig(engine="ray", num_workers=2),
        run_dir=tmp_path,
        input_digests={},
        num_gpus=1,
    )
    assert actor_resources(job, [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 2.0}]) == {"num_cpus": 4, "num_gpus": 1}
    with pytest.raises(UserError, match="no machine of the Ray cluster has one"):
        actor_resources(job, [{"CPU": 8.0}])
    with pytest.raises(UserError, match="no processor"):
        actor_resources(job, [{"memory": 1.0}])


def test_threads_are_those_of_the_kind_of_judge_inside_and_as_before_behind(net: Path) -> None:
    """They move the last bits of a sum: our models have one wherever they run."""
    ours, other = open_net(net).model, open_picky(net).model
    assert (num_torch_threads(ours, ScoreConfig(), 6), num_torch_threads(other, ScoreConfig(), 6)) == (1, 6)
    assert (
        num_torch_threads(ours, ScoreConfig(num_threads=3), 6)
        == num_torch_threads(other, ScoreConfig(num_threads=3), 6)
        == 3
    )
    before = torch.get_num_threads()
    with torch_thread_count(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
