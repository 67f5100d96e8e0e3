"""Shards: whole or not there, and never taken for another run's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import corruptions
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_corpus import COUNT, EVERY, open_net, open_picky, save_net, scored_by, write_corpus

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
def undisturbed(data: LeRobotDataset, net: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    scored_by(open_net, net, data, out)
    return out


def contents(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / SHARDS_DIR).iterdir()} | {
        TABLE_FILE: (run / TABLE_FILE).read_bytes()
    }


@given(st.integers(1, 60), st.integers(1, 20))
def test_shards_are_the_rows_in_their_order_cut_evenly(rows: int, size: int) -> None:
    order = list(np.random.default_rng(rows).permutation(rows))
    shards = make_shards(order, size)
    assert [row for shard in shards for row in shard.rows] == order
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert {len(shard.rows) for shard in shards[:-1]} <= {size}


class StoppedError(Exception):
    """Whatever ends a run in its middle."""


class Impatient(NullReporter):
    """Ends the run after so many blocks."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks

    def track(self, items, description, total=None):
        for number, item in enumerate(items):
            if description == "score" and number == self._blocks:
                raise StoppedError
            yield item


@pytest.mark.parametrize("blocks", [0, 3, 5])
def test_a_run_that_was_ended_anywhere_goes_on_to_the_same_bytes(
    blocks: int, data: LeRobotDataset, net: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """A video has two blocks, and ends when the next one has begun: the first shard is there after five."""
    config = ScoreConfig(shard_episodes=2, plots=True, videos=True)
    run, made_of = RunFolder.open(tmp_path / "run"), {"model": "a"}
    opened: list[int] = []

    def opener():
        opened.append(1)
        return open_net(net)

    with pytest.raises(StoppedError):
        score_corpus(opener, data, config, run, Impatient(blocks), made_of)
    assert len(list(run.path.glob(f"{SHARDS_DIR}/*"))) == blocks // 5
    assert not (run.path / TABLE_FILE).exists() and not list(run.path.glob("**/*.partial"))
    scored = score_corpus(opener, data, config, run, NullReporter(), made_of)
    assert (run.path / TABLE_FILE).read_bytes() == (undisturbed / TABLE_FILE).read_bytes()
    assert list(scored.predictions) == list(range(COUNT))
    for meta in data.meta:
        assert (run.path / f"{meta.name}.png").exists() and (run.path / f"{meta.name}.mp4").exists()
    score_corpus(opener, data, config, run, NullReporter(), made_of)
    assert len(opened) == 2, "nothing is opened where nothing is missing"


def test_the_scores_are_those_of_the_online_step(data: LeRobotDataset, net: Path, tmp_path: Path) -> None:
    scored = scored_by(open_net, net, data, tmp_path, episode_indices=(3, 0))
    assert list(scored.predictions) == [3, 0]
    for row, curve in scored.predictions.items():
        online = score_episodes(open_net(net).model, [data.episode(row)])[0]
        for name, column in vars(online).items():
            np.testing.assert_allclose(getattr(curve, name), column, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("settings", {"frame_stride": 2}),
        ("model", {}),
        ("data", {"shard_episodes": 3}),
    ],
)
def test_a_shard_of_something_else_is_refused_by_name(
    what: str, other: dict, data: LeRobotDataset, net: Path, tmp_path: Path
) -> None:
    scored_by(open_net, net, data, tmp_path / "run")
    stranger = save_net(tmp_path / "stranger", seed=1) if what == "model" else net
    with pytest.raises(UserError, match=rf"00000\.parquet: was scored with other {what}"):
        scored_by(open_net, stranger, data, tmp_path / "run", **other)


def test_a_shard_of_videos_that_were_changed_is_refused(net: Path, tmp_path: Path) -> None:
    root = write_corpus(tmp_path / "data")
    scored_by(open_net, net, LeRobotDataset(root), tmp_path / "run")
    videos = sorted(root.rglob("*.mp4"))
    videos[3].write_bytes(videos[2].read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"00001\.parquet: was scored with other data"):
        scored_by(open_net, net, LeRobotDataset(root), tmp_path / "run")


def test_a_corpus_that_was_moved_is_the_same(net: Path, tmp_path: Path) -> None:
    root = write_corpus(tmp_path / "data")
    scored_by(open_net, net, LeRobotDataset(root), tmp_path / "run")
    scored_by(open_net, net, LeRobotDataset(root.rename(tmp_path / "elsewhere")), tmp_path / "run")


def test_what_is_no_shard_is_refused_by_name(
    data: LeRobotDataset, net: Path, undisturbed: Path, tmp_path: Path
) -> None:
    (tmp_path / SHARDS_DIR).mkdir()
    for content in (b"", b"PAR1", (undisturbed / TABLE_FILE).read_bytes()):
        (tmp_path / SHARDS_DIR / "00001.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"00001\.parquet: not a shard of scores"):
            scored_by(open_net, net, data, tmp_path)


def test_nobody_goes_on_with_shards_of_a_model_that_nobody_names(
    data: LeRobotDataset, net: Path, undisturbed: Path
) -> None:
    with pytest.raises(UserError, match=r"00000\.parquet: is there already, and nobody says"):
        score(open_net(net).model, data, ScoreConfig(shard_episodes=2), RunFolder(undisturbed), NullReporter())


def test_a_damaged_episode_is_left_out_by_name_and_changes_no_other(
    net: Path, data: LeRobotDataset, undisturbed: Path, tmp_path: Path
) -> None:
    """Found while decoding only. Of two episodes of a shard, and of both."""
    root = write_corpus(tmp_path / "data")
    videos = sorted((root / "videos").glob("*top/*/*"))
    for number in (0, 2, 3):
        corruptions.corrupt_packet(videos[number])
    found = LeRobotDataset(root)
    assert len(found) == COUNT
    scored = scored_by(open_net, net, found, tmp_path / "run", videos=True)
    assert affected_episodes(scored.issues) == tuple(data.meta[i].name for i in (0, 2, 3))
    assert {Path(fault.file) for fault in scored.issues} == {videos[i] for i in (0, 2, 3)}
    whole = scored_by(open_net, net, data, undisturbed)
    assert list(scored.predictions) == [1, 4]
    for row in (1, 4):
        for name, column in scored.predictions.table(row).to_pydict().items():
            np.testing.assert_array_equal(column, whole.predictions.table(row)[name].to_numpy())
    again = scored_by(open_net, net, found, tmp_path / "run", videos=True)
    assert again.issues == scored.issues


def test_a_view_that_the_model_does_not_see_costs_the_video_only(tmp_path: Path, net: Path) -> None:
    root = write_corpus(tmp_path / "data")
    corruptions.corrupt_packet(sorted((root / "videos").glob("*top/*/*"))[1])
    found, model = LeRobotDataset(root), open_net(net).model
    model.config = replace(model.config, views=("front", "nowhere"))
    run = RunFolder.open(tmp_path / "run")
    scored = score_corpus(lambda: Scorer(model=model), found, ScoreConfig(shard_episodes=2), run, NullReporter(), {})
    assert list(scored.predictions) == list(range(COUNT))
    assert [fault.episodes for fault in scored.issues] == [()]
    missing = {meta.name for meta in found.meta} - {path.stem for path in run.path.glob("*.mp4")}
    assert missing == {found.meta[1].name}


def test_a_corpus_of_which_nothing_can_be_read_is_an_error(net: Path, tmp_path: Path) -> None:
    root = write_corpus(tmp_path / "data")
    for video in (root / "videos").glob("*top/*/*"):
        corruptions.corrupt_packet(video)
    with pytest.raises(DataError, match=r"no episode can be read: .*\.mp4"):
        scored_by(open_net, net, LeRobotDataset(root), tmp_path / "run")


def test_frames_without_an_answer_are_counted_over_all_shards_and_resumes(
    data: LeRobotDataset, net: Path, tmp_path: Path
) -> None:
    expected = sum((meta.length - 1) // EVERY for meta in data.meta)
    first = scored_by(open_picky, net, data, tmp_path / "run")
    assert first.num_unscored == {"no answer": expected}
    assert sum(int((~curve.valid).sum()) for curve in first.predictions.values()) == expected
    (tmp_path / "run" / SHARDS_DIR / "00001.parquet").unlink()
    assert scored_by(open_picky, net, data, tmp_path / "run").num_unscored == first.num_unscored


@given(st.lists(st.one_of(st.none(), st.integers(1, 9)), max_size=4), st.text(), st.dictionaries(st.text(), st.text()))
def test_what_a_shard_tells_comes_back(lengths: list, what: str, made_of: dict) -> None:
    fault = DataIssue(file=Path("a/b.mp4"), message=what, episodes=("x",))
    told = ShardMetadata(input_digests=made_of, lengths=tuple(lengths), issues=(fault,), num_unscored={"timeout": 3})
    assert ShardMetadata.from_json(told.to_json().encode()) == told


def test_a_shard_is_the_same_bytes_for_the_same_scores(
    undisturbed: Path, data: LeRobotDataset, net: Path, tmp_path: Path
) -> None:
    scored_by(open_net, net, data, tmp_path)
    assert contents(tmp_path) == contents(undisturbed)
    write_shard(tmp_path / "empty" / "x.parquet", [], ShardMetadata(input_digests={}, lengths=(None,)))
    assert (tmp_path / "empty" / "x.parquet").exists()
