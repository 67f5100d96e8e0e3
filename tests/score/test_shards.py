"""Shards are complete or missing, and are never reused for other inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import corruptions
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_corpus import (
    NUM_EPISODES,
    UNSCORED_STRIDE,
    open_flaky,
    open_net,
    run_score,
    save_net,
    write_corpus,
)

from embodied_rm.data.issues import DataIssue, affected_episodes
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import TABLE_FILE, ScoreConfig, Scorer, score, score_corpus
from embodied_rm.score.shards import SHARDS_DIR, ShardMetadata, make_shards, write_shard


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> LeRobotDataset:
    return LeRobotDataset(write_corpus(tmp_path_factory.mktemp("corpus") / "data"))


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_net(tmp_path_factory.mktemp("net") / "net")


@pytest.fixture(scope="module")
def complete_run(data: LeRobotDataset, net: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("complete_run") / "run"
    run_score(open_net, net, data, out)
    return out


def read_outputs(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / SHARDS_DIR).iterdir()} | {
        TABLE_FILE: (run / TABLE_FILE).read_bytes()
    }


@given(st.integers(1, 60), st.integers(1, 20))
def test_shards_split_the_rows_in_order(num_rows: int, size: int) -> None:
    order = list(np.random.default_rng(num_rows).permutation(num_rows))
    shards = make_shards(order, size)
    assert [row for shard in shards for row in shard.rows] == order
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert {len(shard.rows) for shard in shards[:-1]} <= {size}


class StoppedError(Exception):
    """Interrupts a run."""


class InterruptingReporter(NullReporter):
    """Interrupts the run after a number of blocks."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks

    def track(self, items, description, total=None):
        for number, item in enumerate(items):
            if description == "score" and number == self._num_blocks:
                raise StoppedError
            yield item


@pytest.mark.parametrize("num_blocks", [0, 3, 5])
def test_resumed_run_writes_the_same_bytes(
    num_blocks: int, data: LeRobotDataset, net: Path, complete_run: Path, tmp_path: Path
) -> None:
    """A video has two blocks, and ends when the next one starts, so the first shard is stored after five blocks."""
    config = ScoreConfig(shard_episodes=2, plots=True, videos=True)
    run, input_digests = RunFolder.open(tmp_path / "run"), {"model": "a"}
    num_loads = 0

    def scorer_factory():
        nonlocal num_loads
        num_loads += 1
        return open_net(net)

    with pytest.raises(StoppedError):
        score_corpus(scorer_factory, data, config, run, InterruptingReporter(num_blocks), input_digests)
    assert len(list(run.path.glob(f"{SHARDS_DIR}/*"))) == num_blocks // 5
    assert not (run.path / TABLE_FILE).exists() and not list(run.path.glob("**/*.partial"))
    scored = score_corpus(scorer_factory, data, config, run, NullReporter(), input_digests)
    assert (run.path / TABLE_FILE).read_bytes() == (complete_run / TABLE_FILE).read_bytes()
    assert list(scored.predictions) == list(range(NUM_EPISODES))
    for meta in data.meta:
        assert all((run.path / f"episodes/{meta.name}{kind}").exists() for kind in (".png", ".mp4"))
    score_corpus(scorer_factory, data, config, run, NullReporter(), input_digests)
    assert num_loads == 2, "the model is not loaded if no shard is missing"


def test_scores_equal_those_of_online_steps(data: LeRobotDataset, net: Path, tmp_path: Path) -> None:
    scored = run_score(open_net, net, data, tmp_path, episode_indices=(3, 0))
    assert list(scored.predictions) == [3, 0]
    for row, prediction in scored.predictions.items():
        online = score_episodes(open_net(net).model, [data.episode(row)])[0]
        for name, column in vars(online).items():
            np.testing.assert_allclose(getattr(prediction, name), column, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("input_name", "settings"),
    [
        ("settings", {"frame_stride": 2}),
        ("model", {}),
        ("data", {"shard_episodes": 3}),
    ],
)
def test_shard_with_other_inputs_is_rejected(
    input_name: str, settings: dict, data: LeRobotDataset, net: Path, tmp_path: Path
) -> None:
    run_score(open_net, net, data, tmp_path / "run")
    other_net = save_net(tmp_path / "other_net", seed=1) if input_name == "model" else net
    with pytest.raises(UserError, match=rf"00000\.parquet: was scored with other {input_name}"):
        run_score(open_net, other_net, data, tmp_path / "run", **settings)


def test_shard_of_changed_videos_is_rejected(net: Path, tmp_path: Path) -> None:
    root = write_corpus(tmp_path / "data")
    run_score(open_net, net, LeRobotDataset(root), tmp_path / "run")
    videos = sorted(root.rglob("*.mp4"))
    videos[3].write_bytes(videos[2].read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"00001\.parquet: was scored with other data"):
        run_score(open_net, net, LeRobotDataset(root), tmp_path / "run")


def test_moved_corpus_is_accepted(net: Path, tmp_path: Path) -> None:
    root = write_corpus(tmp_path / "data")
    run_score(open_net, net, LeRobotDataset(root), tmp_path / "run")
    written_ns = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / SHARDS_DIR).iterdir()}
    run_score(open_net, net, LeRobotDataset(root.rename(tmp_path / "elsewhere")), tmp_path / "run")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / SHARDS_DIR).iterdir()} == written_ns


def test_invalid_shard_file_is_rejected(data: LeRobotDataset, net: Path, complete_run: Path, tmp_path: Path) -> None:
    (tmp_path / SHARDS_DIR).mkdir()
    for content in (b"", b"PAR1", (complete_run / TABLE_FILE).read_bytes()):
        (tmp_path / SHARDS_DIR / "00001.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"00001\.parquet: not a shard of scores"):
            run_score(open_net, net, data, tmp_path)


def test_existing_shards_are_rejected_without_a_model_digest(
    data: LeRobotDataset, net: Path, complete_run: Path
) -> None:
    with pytest.raises(UserError, match=r"00000\.parquet: already exists"):
        score(open_net(net).model, data, ScoreConfig(shard_episodes=2), RunFolder(complete_run), NullReporter())


def test_corrupted_episodes_are_left_out_and_do_not_affect_others(
    net: Path, data: LeRobotDataset, complete_run: Path, tmp_path: Path
) -> None:
    """The corruption is detected by decoding only. It affects one episode of a shard, or both."""
    root = write_corpus(tmp_path / "data")
    videos = sorted((root / "videos").glob("*top/*/*"))
    for number in (0, 2, 3):
        corruptions.corrupt_packet(videos[number])
    corrupted = LeRobotDataset(root)
    assert len(corrupted) == NUM_EPISODES
    scored = run_score(open_net, net, corrupted, tmp_path / "run", videos=True)
    assert affected_episodes(scored.issues) == tuple(data.meta[i].name for i in (0, 2, 3))
    assert {Path(issue.file) for issue in scored.issues} == {videos[i] for i in (0, 2, 3)}
    intact = run_score(open_net, net, data, complete_run)
    assert list(scored.predictions) == [1, 4]
    for row in (1, 4):
        for name, column in scored.predictions.table(row).to_pydict().items():
            np.testing.assert_array_equal(column, intact.predictions.table(row)[name].to_numpy())
    resumed = run_score(open_net, net, corrupted, tmp_path / "run", videos=True)
    assert resumed.issues == scored.issues


def test_corruption_of_an_unused_view_affects_the_video_only(tmp_path: Path, net: Path) -> None:
    root = write_corpus(tmp_path / "data")
    corruptions.corrupt_packet(sorted((root / "videos").glob("*top/*/*"))[1])
    corrupted, model = LeRobotDataset(root), open_net(net).model
    model.config = replace(model.config, views=("front", "nowhere"))
    run = RunFolder.open(tmp_path / "run")
    scored = score_corpus(
        lambda: Scorer(model=model), corrupted, ScoreConfig(shard_episodes=2), run, NullReporter(), {}
    )
    assert list(scored.predictions) == list(range(NUM_EPISODES))
    assert [issue.episodes for issue in scored.issues] == [()]
    missing = {meta.name for meta in corrupted.meta} - {path.stem for path in run.path.glob("episodes/*.mp4")}
    assert missing == {corrupted.meta[1].name}


def test_corpus_without_readable_episodes_is_an_error(net: Path, tmp_path: Path) -> None:
    root = write_corpus(tmp_path / "data")
    for video in (root / "videos").glob("*top/*/*"):
        corruptions.corrupt_packet(video)
    with pytest.raises(DataError, match=r"no episode can be read: .*\.mp4"):
        run_score(open_net, net, LeRobotDataset(root), tmp_path / "run")


def test_unscored_frames_are_counted_over_all_shards_and_resumes(
    data: LeRobotDataset, net: Path, tmp_path: Path
) -> None:
    expected = sum((meta.length - 1) // UNSCORED_STRIDE for meta in data.meta)
    first = run_score(open_flaky, net, data, tmp_path / "run")
    assert first.num_unscored == {"no answer": expected}
    assert sum(int((~prediction.valid).sum()) for prediction in first.predictions.values()) == expected
    (tmp_path / "run" / SHARDS_DIR / "00001.parquet").unlink()
    assert run_score(open_flaky, net, data, tmp_path / "run").num_unscored == first.num_unscored


@given(st.lists(st.one_of(st.none(), st.integers(1, 9)), max_size=4), st.text(), st.dictionaries(st.text(), st.text()))
def test_metadata_survives_json(lengths: list, message: str, input_digests: dict) -> None:
    metadata = ShardMetadata(
        input_digests=input_digests,
        lengths=tuple(lengths),
        issues=(DataIssue(file=Path("a/b.mp4"), message=message, episodes=("x",)),),
        num_unscored={"timeout": 3},
    )
    assert ShardMetadata.from_json(metadata.to_json().encode()) == metadata


def test_equal_scores_give_equal_bytes(complete_run: Path, data: LeRobotDataset, net: Path, tmp_path: Path) -> None:
    run_score(open_net, net, data, tmp_path)
    assert read_outputs(tmp_path) == read_outputs(complete_run)
    write_shard(tmp_path / "empty" / "x.parquet", [], ShardMetadata(input_digests={}, lengths=(None,)))
    assert (tmp_path / "empty" / "x.parquet").exists()
