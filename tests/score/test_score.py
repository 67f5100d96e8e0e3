"""What scoring leaves behind: a table like LeRobot's, a plot, a video, all saying what the model said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from sprites import episodes

from embodied_rm.data.source import EpisodeMeta
from embodied_rm.data.stride import stride_indices
from embodied_rm.data.video.files import read_frames
from embodied_rm.errors import UserError
from embodied_rm.models.encoders import resize_frames
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import CURVE_SIZE_PX, TABLE_FILE, ScoreConfig, read_episodes_for, score
from embodied_rm.train import TrainConfig, make_net
from embodied_rm.types import Episode, Views


class InMemory:
    """An `EpisodeSource` over episodes that are there already."""

    def __init__(self, known: Sequence[Episode]) -> None:
        self._known = list(known)
        self.views = tuple(known[0].views)
        self.fps = known[0].fps
        self.meta = tuple(EpisodeMeta(name=e.name, length=len(e), instruction=e.instruction) for e in known)
        self.issues = ()

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._known)

    def frame_rate(self, index: int) -> float:
        return self._known[index].fps

    def files(self, index: int) -> tuple[Path, ...]:
        return ()

    def read_frames(self, index, start, stop, *, views, size) -> Views:
        found = self._known[index]
        return Views(
            names=tuple(views),
            frames=np.stack([resize_frames(found.views[v][start:stop], size) for v in views], axis=1),
        )

    def episode(self, index, *, views=None, size=None, stride=1) -> Episode:
        found = self._known[index]
        kept = stride_indices(len(found), stride)
        frames = {name: found.views[name][kept] for name in views or self.views}
        if size is not None:
            frames = {name: resize_frames(pixels, size) for name, pixels in frames.items()}
        return Episode(name=found.name, views=frames, instruction=found.instruction, fps=found.fps / stride)


SOURCE = InMemory(episodes(3))
NET = make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    torch.set_num_threads(1)
    run = RunFolder.open(tmp_path_factory.mktemp("score") / "run")
    curves = score(NET, SOURCE, ScoreConfig(episode_indices=(2, 1), max_video_frames=8), run, NullReporter())
    return run, curves


def test_the_table_has_lerobots_columns_and_a_row_for_every_frame(scored):
    run, curves = scored
    table = pq.read_table(run.path / TABLE_FILE).to_pydict()
    lengths = [meta.length for meta in SOURCE.meta]
    assert list(table)[:5] == ["index", "episode_index", "frame_index", "progress_sparse", "progress_dense"]
    assert table["episode_index"] == [1] * lengths[1] + [2] * lengths[2]
    assert table["frame_index"] == [*range(lengths[1]), *range(lengths[2])]
    assert table["index"] == list(range(lengths[0], sum(lengths)))
    told = np.concatenate([curves[1].progress, curves[2].progress])
    np.testing.assert_array_equal(np.float32(table["progress_dense"]), told)
    assert table["progress_sparse"] == table["progress_dense"]
    assert {"success", "subtask", "uncertainty", "valid", "ood"} < set(table)


def test_the_numbers_are_those_of_the_online_step(scored):
    _, curves = scored
    for row, curve in curves.items():
        online = score_episodes(NET, [SOURCE.episode(row)])[0]
        np.testing.assert_allclose(curve.progress, online.progress, atol=1e-6)


def test_there_is_a_plot_and_a_video_of_every_episode(scored):
    run, _ = scored
    for row in (1, 2):
        name = SOURCE.meta[row].name
        with Image.open(run.path / f"{name}.png") as image:
            assert image.format == "PNG" and min(image.size) > 200
        frames = read_frames(run.path / f"{name}.mp4")
        assert 4 <= len(frames) <= 9 and frames.shape[2] == CURVE_SIZE_PX[0]
        below = frames[:, -CURVE_SIZE_PX[1] :].astype(int)
        green = (below[..., 1] > below[..., 0] + 40).sum(axis=(1, 2))
        assert green[-1] > green[0] and (np.diff(green) >= -20).all(), "the curve grows with time"
    assert not (run.path / f"{SOURCE.meta[0].name}.png").exists()


def test_reading_for_a_model_takes_its_views_at_its_size():
    net = make_net([Episode(name="e", views={"top": np.zeros((3, 16, 24, 3), np.uint8)}, instruction="go", fps=1.0)],
                  TrainConfig(image_size=(16, 24)))  # fmt: skip
    read = list(read_episodes_for(net.input_spec, SOURCE, [1]))
    assert [(e.name, list(e.views), e.views["top"].shape[1:3]) for e in read] == [
        (SOURCE.meta[1].name, ["top"], (16, 24))
    ]


def test_mistakes(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(UserError, match="episode 3 is not among the 3 readable episodes"):
        score(NET, SOURCE, ScoreConfig(episode_indices=(3,)), run, NullReporter())
    stranger = make_net([Episode(name="e", views={"ceiling": np.zeros((3, 32, 32, 3), np.uint8)}, instruction="go",
                                fps=1.0)], TrainConfig(image_size=(32, 32)))  # fmt: skip
    with pytest.raises(UserError, match="knows the views ceiling; the recording has front, top"):
        score(stranger, SOURCE, ScoreConfig(), run, NullReporter())
    with pytest.raises(UserError, match="max_video_frames"):
        ScoreConfig(max_video_frames=1)
