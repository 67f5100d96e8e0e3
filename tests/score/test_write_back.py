"""Scores beside a dataset are what LeRobot's readers expect, and what a run of `score` says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sprites import episode

from embodied_rm.cli.main import main
from embodied_rm.data.dataset_hash import hash_episodes
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.metrics.advantages import progress_advantage
from embodied_rm.score.write_back import frame_signals


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "dataset") as writer:
        for number in range(3):
            writer.add(episode(number, length=8 + number))
    return tmp_path / "dataset"


def score(dataset: Path, *args: str) -> int:
    out = () if any(arg.startswith("out=") for arg in args) else (f"out={dataset.parent / 'run'}",)
    return main(["score", f"data={dataset}", *out, "checkpoint=tabletop", "videos=false", "plots=false", *args])


def test_the_files_are_those_that_lerobot_reads(dataset: Path) -> None:
    assert score(dataset, "write_back=true", "episode_indices=[2,0]") == 0
    rabc = pq.read_table(dataset / "sarm_progress.parquet")
    assert rabc.column_names == ["index", "episode_index", "frame_index", "progress_sparse", "progress_dense"]
    assert rabc.schema.types == [pa.int64(), pa.int64(), pa.int64(), pa.float32(), pa.float32()]
    assert rabc.schema.metadata[b"reward_model_path"] == b"tabletop"
    assert rabc["index"].to_pylist() == [*range(8), *range(17, 27)], "counted over all episodes of the dataset"
    assert rabc["frame_index"].to_pylist() == [*range(8), *range(10)]
    assert rabc["progress_sparse"] == rabc["progress_dense"], "RA-BC reads the first one by default"
    assert rabc["episode_index"].to_pylist() == [0] * 8 + [2] * 10
    run = pq.read_table(dataset.parent / "run" / "progress.parquet").sort_by("index")
    assert rabc["progress_dense"].to_pylist() == run["progress_dense"].to_pylist()

    signals = pq.read_table(dataset / "frame_signals.parquet")
    metadata = {key.decode(): value.decode() for key, value in signals.schema.metadata.items()}
    assert metadata["lerobot.reward_scoring.format"] == "lerobot.frame_signals"
    assert metadata["lerobot.reward_scoring.schema_version"] == "1"
    assert json.loads(metadata["lerobot.reward_scoring.episode_indices"]) == [0, 2]
    descriptors = json.loads(metadata["lerobot.reward_scoring.descriptors"])
    assert list(descriptors) == ["advantage", "progress", "success", "uncertainty"] == signals.column_names[3:]
    keys = {"allow_nan", "bounds", "comparison_scope", "description", "direction", "unit"}
    for name, descriptor in descriptors.items():
        assert descriptor.keys() == keys and descriptor["direction"] in ("higher", "lower", "none")
        values = signals[name].to_numpy()
        low, high = descriptor["bounds"] or (-np.inf, np.inf)
        assert ((values >= low) & (values <= high)).all() and np.isfinite(values).all()
    assert json.loads(metadata["lerobot.reward_scoring.provenance"])["model"]["name"] == "tabletop"
    assert score(dataset, "write_back=true", f"out={dataset.parent / 'again'}") == 0, "its own files are replaced"
    assert pq.read_table(dataset / "sarm_progress.parquet").num_rows == 27


@pytest.mark.parametrize("joined", [False, True])
def test_files_beside_a_dataset_change_nothing_of_it(dataset: Path, joined: bool) -> None:
    """Those of `write_back`, and those that LeRobot, its tools and the hub leave there."""
    path = dataset.parent / "joined" if joined else dataset
    if joined:
        path.mkdir()
        dataset = dataset.rename(path / "first")
    before = open_dataset(path)
    expected = [before.views, before.meta, before.issues, hash_episodes(before, range(len(before)))]
    run = path.parent / "run"
    assert score(dataset, "write_back=true", f"out={run}") == 0
    (dataset / "README.md").write_text("# A dataset")
    (dataset / ".gitattributes").write_text("*.mp4 filter=lfs")
    for folder in ("images/observation.images.front/episode-000000", ".cache/huggingface", ".annotate_staging", "logs"):
        (dataset / folder).mkdir(parents=True)
    (dataset / "images/observation.images.front/episode-000000/frame-000000.png").write_bytes(b"")
    (dataset / "preview.mp4").write_bytes(b"")
    pq.write_table(pa.table({"index": [0]}), dataset / "meta/returns.parquet")
    after = open_dataset(path)
    assert [after.views, after.meta, after.issues, hash_episodes(after, range(len(after)))] == expected
    assert {f"{name}.parquet" for name in ("sarm_progress", "frame_signals")} <= {p.name for p in dataset.iterdir()}
    for name in ("sarm_progress", "frame_signals"):
        table = pq.read_table(dataset / f"{name}.parquet")
        assert table["index"].to_pylist() == list(range(sum(meta.length for meta in after.meta)))


def test_unscored_frames_are_nan_and_success_is_optional() -> None:
    scores = pa.table({
        "index": [0, 1, 2], "episode_index": [0, 0, 0], "frame_index": [0, 1, 2],
        "progress_dense": np.array([0, np.nan, 0.5], np.float32), "success": np.full(3, np.nan, np.float32),
        "uncertainty": np.zeros(3, np.float32),
    })  # fmt: skip
    signals = frame_signals(scores)
    assert signals.column_names == ["index", "episode_index", "frame_index", "advantage", "progress", "uncertainty"]
    assert np.isnan(signals["progress"].to_numpy()[1]) and np.isnan(signals["advantage"].to_numpy()[1])


def test_files_of_others_and_other_data_are_refused(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"index": [0]}), dataset / "sarm_progress.parquet")
    assert score(dataset, "write_back=true") == 2
    assert "sarm_progress.parquet was not written by embodied-rm" in " ".join(capsys.readouterr().err.split())
    assert score(dataset / "videos", "write_back=true") == 2
    assert "write_back=true needs a LeRobot dataset" in " ".join(capsys.readouterr().err.split())
    assert not (dataset / "frame_signals.parquet").exists()


@given(st.integers(2, 60), st.integers(1, 80))
def test_an_episode_of_usual_pace_has_no_advantage(length: int, horizon: int) -> None:
    progress = np.arange(length) / length
    assert progress_advantage(progress, horizon, length) == pytest.approx(0, abs=1e-6)
    assert (progress_advantage(progress, horizon, 2 * length)[:-1] > 0).all(), "twice as fast as usual"
    assert progress_advantage(progress[::-1], horizon, length)[0] < 0


def test_a_known_advantage() -> None:
    advantage = progress_advantage([0.0, 0.5, 0.25, 1.0], 2, 10)
    assert advantage == pytest.approx([0.25 - 0.2, 0.5 - 0.2, 0.75 - 0.1, 0.0])
