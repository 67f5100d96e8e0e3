"""`score` writes a table in LeRobot's format, plots and videos with the predictions of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from read_video import read_frames
from sprites import episodes

from embodied_rm.data.source import EpisodeMeta, stride_indices
from embodied_rm.errors import UserError
from embodied_rm.models.encoders import resize_frames
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import TABLE_FILE, ScoreConfig, read_episodes_for, score
from embodied_rm.score.visualize import CURVE_SIZE_PX
from embodied_rm.training import TrainConfig, make_net
from embodied_rm.types import Episode, Views


class InMemorySource:
    """An `EpisodeSource` of episodes in memory."""

    def __init__(self, source_episodes: Sequence[Episode]) -> None:
        self._episodes = list(source_episodes)
        self.views = tuple(source_episodes[0].views)
        self.fps = source_episodes[0].fps
        self.meta = tuple(EpisodeMeta(name=e.name, length=len(e), instruction=e.instruction) for e in source_episodes)
        self.issues = ()

    def __len__(self) -> int:
        return len(self._episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._episodes)

    def frame_rate(self, index: int) -> float:
        return self._episodes[index].fps

    def files(self, index: int) -> tuple[Path, ...]:
        return ()

    def read_frames(self, index, start, stop, *, views, size) -> Views:
        episode = self._episodes[index]
        return Views(
            names=tuple(views),
            frames=np.stack([resize_frames(episode.views[v][start:stop], size) for v in views], axis=1),
        )

    def episode(self, index, *, views=None, size=None, stride=1) -> Episode:
        episode = self._episodes[index]
        frame_indices = stride_indices(len(episode), stride)
        frames = {name: episode.views[name][frame_indices] for name in views or self.views}
        if size is not None:
            frames = {name: resize_frames(pixels, size) for name, pixels in frames.items()}
        return Episode(name=episode.name, views=frames, instruction=episode.instruction, fps=episode.fps / stride)


SOURCE = InMemorySource(episodes(3))
NET = make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    torch.set_num_threads(1)
    run = RunFolder.open(tmp_path_factory.mktemp("score") / "run")
    predictions = score(NET, SOURCE, ScoreConfig(episode_indices=(2, 1), max_video_frames=8), run, NullReporter())
    return run, predictions


def test_table_has_the_columns_of_lerobot_and_one_row_per_frame(scored):
    run, predictions = scored
    table = pq.read_table(run.path / TABLE_FILE).to_pydict()
    lengths = [meta.length for meta in SOURCE.meta]
    assert list(table)[:5] == ["index", "episode_index", "frame_index", "progress_sparse", "progress_dense"]
    assert table["episode_index"] == [1] * lengths[1] + [2] * lengths[2]
    assert table["frame_index"] == [*range(lengths[1]), *range(lengths[2])]
    assert table["index"] == list(range(lengths[0], sum(lengths)))
    progress = np.concatenate([predictions[1].progress, predictions[2].progress])
    np.testing.assert_array_equal(np.float32(table["progress_dense"]), progress)
    assert table["progress_sparse"] == table["progress_dense"]
    assert {"success", "subtask", "uncertainty", "valid", "ood"} < set(table)


def test_scores_equal_those_of_online_steps(scored):
    _, predictions = scored
    for row, prediction in predictions.items():
        online = score_episodes(NET, [SOURCE.episode(row)])[0]
        np.testing.assert_allclose(prediction.progress, online.progress, atol=1e-6)


def test_every_episode_has_a_plot_and_a_video(scored):
    run, _ = scored
    for row in (1, 2):
        name = SOURCE.meta[row].name
        with Image.open(run.path / f"episodes/{name}.png") as image:
            assert image.format == "PNG" and min(image.size) > 200
        frames = read_frames(run.path / f"episodes/{name}.mp4")
        assert 4 <= len(frames) <= 9 and frames.shape[2] == CURVE_SIZE_PX[0]
        curve_images = frames[:, -CURVE_SIZE_PX[1] :].astype(int)
        green = (curve_images[..., 1] > curve_images[..., 0] + 40).sum(axis=(1, 2))
        assert green[-1] > green[0] and (np.diff(green) >= -20).all(), "the curve grows with time"
    assert not (run.path / f"episodes/{SOURCE.meta[0].name}.png").exists()


def test_read_episodes_for_uses_the_views_and_size_of_the_model():
    net = make_net([Episode(name="e", views={"top": np.zeros((3, 16, 24, 3), np.uint8)}, instruction="go", fps=1.0)],
                  TrainConfig(image_size=(16, 24)))  # fmt: skip
    selected = list(read_episodes_for(net.input_spec, SOURCE, [1]))
    assert [(e.name, list(e.views), e.views["top"].shape[1:3]) for e in selected] == [
        (SOURCE.meta[1].name, ["top"], (16, 24))
    ]


def test_invalid_requests_are_rejected(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(UserError, match="episode 3 is not among the 3 readable episodes"):
        score(NET, SOURCE, ScoreConfig(episode_indices=(3,)), run, NullReporter())
    other_net = make_net([Episode(name="e", views={"ceiling": np.zeros((3, 32, 32, 3), np.uint8)}, instruction="go",
                                fps=1.0)], TrainConfig(image_size=(32, 32)))  # fmt: skip
    with pytest.raises(UserError, match="knows the views ceiling; the recording has front, top"):
        score(other_net, SOURCE, ScoreConfig(), run, NullReporter())
    with pytest.raises(UserError, match="max_video_frames"):
        ScoreConfig(max_video_frames=1)


@pytest.mark.parametrize("name", ["metrics.json/x", "config.json/x", "progress.parquet/x"])
def test_an_episode_named_like_a_file_of_the_run_hides_none(name: str, tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path / "run")
    source = InMemorySource([replace(episodes(1)[0], name=name)])
    score(NET, source, ScoreConfig(videos=False), run, NullReporter())
    assert (run.path / f"episodes/{name}.png").exists() and (run.path / TABLE_FILE).is_file() and not run.finished
