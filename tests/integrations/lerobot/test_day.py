"""LeRobot reads our dataset and its scores, trains a policy on them, and evaluates it in our simulator."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CHUNK_FRAMES, STEPS, Day
from lerobot.datasets.lerobot_dataset import LeRobotDataset

try:
    from lerobot.rewards.sarm.rabc import RABCWeights
except ModuleNotFoundError:  # lerobot 0.4
    from lerobot.utils.rabc import RABCWeights

KAPPA = 0.01  # LeRobot's default: chunks that progress by more have full weight


@pytest.fixture(scope="session")
def rabc_weights(day: Day) -> np.ndarray:
    """The RA-BC weight of every frame, [N]; in one batch, so that they sum to N."""
    scores = RABCWeights(day.dataset / "sarm_progress.parquet", chunk_size=CHUNK_FRAMES, device=torch.device("cpu"))
    assert scores.kappa == KAPPA
    weights, _ = scores.compute_batch_weights({"index": torch.arange(len(scores.df))})
    return weights.numpy()


def chunk_changes(frames: pd.DataFrame, column: str) -> np.ndarray:
    """Change of a column over the next chunk, or up to the end of the episode, [N]."""
    episodes = frames.groupby("episode_index")[column]
    return np.concatenate([
        values.to_numpy()[np.minimum(np.arange(len(values)) + CHUNK_FRAMES, len(values) - 1)] - values.to_numpy()
        for _, values in episodes
    ])  # fmt: skip


def test_lerobot_loads_the_dataset(day: Day) -> None:
    data = LeRobotDataset("local/lift_cube", root=day.dataset, video_backend="pyav")
    assert (data.num_episodes, data.fps) == (8, 20)
    item = data[len(data) - 1]
    assert item["observation.images.front"].shape == item["observation.images.wrist"].shape == (3, 64, 64)
    assert item["observation.state"].shape == (29,) and item["action"].shape == (4,)
    assert item["task"].endswith("cube") and int(item["episode_index"]) == 7


def test_weights_are_full_where_the_scores_rise_and_zero_where_they_fall(day: Day, rabc_weights: np.ndarray) -> None:
    scores = pd.read_parquet(day.dataset / "sarm_progress.parquet")
    assert scores["index"].tolist() == list(range(len(rabc_weights)))
    changes = chunk_changes(scores, "progress_sparse")
    rises, falls = changes > KAPPA, changes < 0
    assert rises.sum() > 50 and falls.sum() > 10
    assert (rabc_weights[falls] == 0).all()
    np.testing.assert_allclose(rabc_weights[rises], rabc_weights.max())
    assert rabc_weights.sum() == pytest.approx(len(rabc_weights), rel=1e-4)


def test_weights_are_higher_where_the_simulator_says_that_the_task_progresses(
    day: Day, rabc_weights: np.ndarray
) -> None:
    frames = pd.concat(map(pd.read_parquet, sorted(day.dataset.glob("data/*/*.parquet"))))
    changes = chunk_changes(frames, "progress")
    assert rabc_weights[changes > 0.05].mean() > 2 * rabc_weights[changes < -0.01].mean()
    assert rabc_weights[changes > 0.05].mean() > 1 > rabc_weights[changes < -0.01].mean()


def test_lerobot_trains_with_the_weights_and_evaluates_in_the_simulator(day: Day) -> None:
    assert "sarm_progress.parquet" in day.log and "Loading SARM progress" in day.log
    checkpoint = day.folder / "train" / "checkpoints" / "last" / "pretrained_model"
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["type"] == "smolvla" and config["chunk_size"] == CHUNK_FRAMES
    assert config["input_features"]["observation.state"]["shape"] == [29]
    assert (checkpoint.parent.parent / f"{STEPS:06d}").is_dir()
    results = json.loads((day.folder / "eval" / "eval_info.json").read_text())["overall"]
    assert results["n_episodes"] == 2 and 0 <= results["pc_success"] <= 100
    assert len(list((day.folder / "eval").rglob("*.mp4"))) == 2
