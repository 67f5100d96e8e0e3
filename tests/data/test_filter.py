"""`embodied-rm filter`: which episodes are good, and that they are written as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from painted_frames import make_episode, read_numbers

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import UserError
from embodied_rm.score import SelectionConfig, select_episodes
from embodied_rm.score.write_scores import episode_table, first_frame_indices, write_table
from embodied_rm.types import RewardOutput

LENGTHS = (9, 7, 8, 6)


def prediction(length: int, progress: float, success: float, valid: bool = True) -> RewardOutput:
    """Return predictions that are high until the last frame, which alone counts."""
    curves = [np.array([1.0] * (length - 1) + [last], np.float32) for last in (progress, success)]
    return RewardOutput(
        progress=curves[0],
        success=curves[1],
        subtask=np.zeros(length, np.int64),
        uncertainty=np.zeros(length, np.float32),
        valid=np.full(length, valid),
        ood=np.full(length, np.nan, np.float32),
    )


META = [EpisodeMeta(name=f"e{row}", length=4, instruction=task) for row, task in enumerate("aaaab")]
PREDICTIONS = {
    0: prediction(4, 0.9, 0.6),
    1: prediction(4, 0.8, 0.9),
    2: prediction(4, 0.9, 0.7),
    3: prediction(4, 1.0, 0.2),
    4: prediction(4, 0.3, 0.8),
}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [0, 1, 2, 4]),
        ({"min_success": 0.65}, [1, 2, 4]),
        ({"min_success": None}, [0, 1, 2, 3, 4]),
        ({"min_progress": 0.85}, [0, 2]),
        ({"best_fraction": 0.5}, [0, 2, 4]),
        ({"best_fraction": 0.01}, [2, 4]),
        ({"best_fraction": 0.5, "min_success": None}, [2, 3, 4]),
    ],
)
def test_last_predictions_and_the_rank_among_episodes_of_the_task_decide(settings: dict, kept: list[int]) -> None:
    episodes = select_episodes(META, PREDICTIONS, SelectionConfig(**settings))
    assert [row for row, episode in enumerate(episodes) if episode.reason is None] == kept


def test_an_episode_without_scores_is_left_out_and_counts_in_no_fraction() -> None:
    predictions = {0: PREDICTIONS[0], 1: prediction(4, 1.0, 1.0, valid=False), 4: PREDICTIONS[4]}
    episodes = select_episodes(META, predictions, SelectionConfig(best_fraction=0.5))
    reasons = {episode.episode: episode.reason for episode in episodes}
    assert reasons == {"e0": None, "e4": None, **dict.fromkeys(("e1", "e2", "e3"), "no frame has a score")}


def test_a_model_without_success_is_named() -> None:
    predictions = {0: prediction(4, 0.9, float("nan"))}
    with pytest.raises(UserError, match="predicts no success: set min_success=null and min_progress="):
        select_episodes(META, predictions, SelectionConfig())
    assert select_episodes(META, predictions, SelectionConfig(min_success=None))[0].success is None


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "data") as writer:
        for index, length in enumerate(LENGTHS):
            writer.add(make_episode(index, length))
    return tmp_path / "data"


@pytest.fixture
def scores(dataset: Path, tmp_path: Path) -> Path:
    """A run folder of `score` in which episodes 1 and 3 are good."""
    meta = open_dataset(dataset).meta
    starts = first_frame_indices(meta).tolist()
    tables = [
        episode_table(row, prediction(length, 0.9, 0.9 * (row % 2)), meta[row], starts[row])
        for row, length in enumerate(LENGTHS)
    ]
    (tmp_path / "scores").mkdir()
    write_table(tmp_path / "scores" / "progress.parquet", tables)
    return tmp_path / "scores"


def run_filter(dataset: Path, scores: Path, out: Path, *words: str) -> int:
    return main(["filter", f"data={dataset}", f"scores={scores}", f"out={out}", *words])


def test_good_episodes_are_written_as_they_were(dataset: Path, scores: Path, tmp_path: Path) -> None:
    assert run_filter(dataset, scores, tmp_path / "run") == 0
    source, subset = open_dataset(dataset), open_dataset(tmp_path / "run" / "dataset")
    assert subset.issues == () and len(subset) == 2
    for written, row in zip(subset, (1, 3), strict=True):
        original = source.episode(row)
        assert read_numbers(written.views["front"]) == read_numbers(original.views["front"])
        assert written.instruction == original.instruction and np.array_equal(written.action, original.action)
    stored: dict[str, Any] = json.loads((tmp_path / "run" / "episodes.json").read_text())
    assert [episode["reason"] for episode in stored["episodes"]] == ["success 0.000 < 0.5", None] * 2
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["filter"] == {"episodes": 4, "kept": 2, "unreadable": 0}


def test_scores_of_a_real_model_are_read(dataset: Path, tmp_path: Path) -> None:
    words = ["checkpoint=real", "plots=false", "videos=false"]
    assert main(["score", f"data={dataset}", *words, f"out={tmp_path / 'scored'}"]) == 0
    words = ["min_success=null", "best_fraction=0.25"]
    assert run_filter(dataset, tmp_path / "scored", tmp_path / "run", *words) == 0
    table = pq.read_table(tmp_path / "scored" / "progress.parquet")
    last = dict(zip(*(table[name].to_pylist() for name in ("episode_index", "progress_dense")), strict=True))
    best = sorted(max(rows, key=last.__getitem__) for rows in ((0, 2), (1, 3)))  # the two tasks
    assert [len(episode) for episode in open_dataset(tmp_path / "run" / "dataset")] == [LENGTHS[row] for row in best]


def test_mistakes_are_named(dataset: Path, scores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_filter(dataset, tmp_path, tmp_path / "run_0") == 2
    assert (
        "holds no progress.parquet: scores= is the run folder of a finished embodied-rm score"
        in capsys.readouterr().err
    )
    with DatasetWriter(tmp_path / "other") as writer:
        writer.add(make_episode(0, 5))
    assert run_filter(tmp_path / "other", scores, tmp_path / "run_1") == 2
    assert "is of another dataset: its episode 0 has 9 frames, data has 5 frames" in capsys.readouterr().err
    assert run_filter(dataset, scores, tmp_path / "run_2", "min_progress=0.95") == 2
    assert "no episode of" in capsys.readouterr().err
    assert run_filter(dataset, scores, tmp_path / "run_3", "best_fraction=0") == 2
    assert "best_fraction must be in (0, 1], got 0.0" in capsys.readouterr().err
