"""What `score rerun=true` leaves behind, by Rerun's own reader: videos, curves, words and their arrangement."""

from __future__ import annotations

import io
import weakref
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from rerun.chunk import RrdReader
from sprites import episode, episodes

from embodied_rm.cli.main import main
from embodied_rm.data.block_reader import FRAMES_PER_BLOCK, PREFETCH_COUNT
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.report.rerun_export import MAX_HEIGHT_PX, display_size, write_rerun
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import TABLE_FILE, plot_series
from embodied_rm.train import TrainConfig, make_net
from embodied_rm.types import RewardOutput, Subtask, Views

LINES = ("progress", "low", "high", "success", "uncertainty")
NAMES = {0: "sprite_000_carry", 2: "sprite_002_carry"}
"""Episodes that are scored."""
Table = dict[str, list]


def read(path: Path, *, blueprint: bool = False) -> dict[str, Table]:
    """Entity -> column -> values, in the order of the frames; static columns have one value."""
    reader, found = RrdReader(path), dict[str, Table]()
    stream = reader.stream(store=reader.blueprints()[0]) if blueprint else reader.stream()
    for chunk in stream:
        table = found.setdefault(chunk.entity_path, {})
        for name, values in chunk.to_record_batch().to_pydict().items():
            if name != "rerun.controls.RowId":
                table.setdefault(name, []).extend(values)
    for table in found.values():
        order = np.argsort(table.get("frame", []), kind="stable")
        table.update({name: [values[i] for i in order] for name, values in table.items() if len(values) == len(order)})
    return found


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder, of two of three episodes; `data` beside it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("rerun")
    with DatasetWriter(folder / "data") as writer:
        for one in [*episodes(2), episode(2, success=False, length=70)]:
            writer.add(one)
    config = TrainConfig(image_size=(32, 32))
    save_progress_net(folder / "model", make_net(episodes(2), config).eval(), {})
    words = [
        "episode_indices=[0,2]",
        "rerun=true",
        "plots=false",
        "videos=false",
        "report_episodes=0",
        f"out={folder / 'run'}",
    ]
    assert main(["score", f"data={folder / 'data'}", f"checkpoint={folder / 'model'}", *words]) == 0
    return folder / "run"


def test_there_is_one_whole_file_for_every_scored_episode(scored):
    assert sorted(path.name for path in scored.iterdir() if ".rrd" in path.name) == [f"{n}.rrd" for n in NAMES.values()]
    for path in scored.glob("*.rrd"):
        RrdReader(path).store()  # which needs what is written last


@pytest.mark.parametrize("number", [0, 2])
def test_curves_are_those_of_the_table_by_frame_and_by_time(scored, number):
    told = read(scored / f"{NAMES[number]}.rrd")
    table = pq.read_table(scored / TABLE_FILE, filters=[("episode_index", "=", number)]).to_pydict()
    frames = table["frame_index"]
    value, spread = (np.float32(table[name]) for name in ("progress_dense", "uncertainty"))
    expected = {"progress": value, "low": np.clip(value - spread, 0, 1), "high": np.clip(value + spread, 0, 1),
                "success": np.float32(table["success"]), "uncertainty": spread}  # fmt: skip
    for name in LINES:
        line = told[f"/prediction/{name}"]
        assert line["frame"] == frames and line["SeriesLines:names"] == [[name]]
        np.testing.assert_allclose([t.total_seconds() for t in line["time"]], np.array(frames) / 10, atol=1e-6)
        np.testing.assert_allclose(np.array(line["Scalars:scalars"])[:, 0], expected[name], atol=1e-6)
    assert "/prediction/ood" not in told, "this model does not tell"


@pytest.mark.parametrize("number", [0, 2])
def test_every_view_is_there_frame_by_frame(scored, number):
    told, stored = read(scored / f"{NAMES[number]}.rrd"), open_dataset(scored.parent / "data").episode(number)
    assert {name for name in told if name.startswith("/views")} == {"/views/front", "/views/top"}
    for view, frames in stored.views.items():
        video = told[f"/views/{view}"]
        assert video["frame"] == list(range(len(frames)))
        assert video["EncodedImage:media_type"] == [["image/jpeg"]] * len(frames)
        for (blob,), frame in zip(video["EncodedImage:blob"], frames, strict=True):
            with Image.open(io.BytesIO(bytes(blob))) as image:
                assert image.format == "JPEG"
                assert np.abs(np.asarray(image).astype(int) - frame).mean() < 6


def test_words_are_there_and_steps_end(scored):
    whole, failed = (read(scored / f"{NAMES[number]}.rrd") for number in (0, 2))
    assert whole["/instruction"]["TextDocument:text"] == [[episode(0).instruction]]
    steps = [(step.start, [step.name]) for step in episode(0).subtasks]
    assert list(zip(whole["/subtask"]["frame"], whole["/subtask"]["StateChange:state"], strict=True)) == steps
    assert whole["/__properties"]["RecordingInfo:name"] == [[NAMES[0]]]
    assert failed["/subtask"]["frame"][0] == 0


def test_views_stand_above_the_curves(scored):
    told = read(scored / f"{NAMES[0]}.rrd", blueprint=True)
    parts = {path: contents for path, (contents,) in of(told, "ContainerBlueprint:contents")}
    kinds = {path: kind for path, ((kind,),) in of(told, "ViewBlueprint:class_identifier")}
    (column,) = (inside for inside in parts.values() if len(inside) == 5)
    order = [kinds[part] if part in kinds else [kinds[view] for view in parts[part]] for part in column]
    assert order == ["TextDocument", ["2D", "2D"], "TimeSeries", "TimeSeries", "StateTimeline"]
    shown = {query for _, (contents,) in of(told, "ViewContents:query") for query in contents}
    assert {f"prediction/{name}" for name in LINES} <= shown and "prediction/ood" not in shown
    assert told["/time_panel"]["TimePanelBlueprint:timeline"] == [["time"]]


def of(told: dict[str, Table], column: str) -> list[tuple[str, list]]:
    """(entity as a blueprint refers to it, values) of those that have the column."""
    return [(path.removeprefix("/"), table[column]) for path, table in told.items() if column in table]


class LongVideo:
    """A source of one long gray video, which counts how many of its blocks are alive."""

    views = ("front", "what/is this")
    fps = 10.0
    issues = ()
    meta = (
        EpisodeMeta(
            name="long/video",
            length=20 * FRAMES_PER_BLOCK + 1,
            instruction="wait",
            subtasks=(
                Subtask(name="a", start=1, end=3),
                Subtask(name="b", start=3, end=5),
                Subtask(name="c", start=9, end=641),
            ),
        ),
    )

    def __init__(self) -> None:
        self.alive: weakref.WeakSet = weakref.WeakSet()
        self.most = 0

    def __len__(self) -> int:
        return 1

    def frame_rate(self, index: int) -> float:
        return self.fps

    def image_size(self, index: int) -> tuple[int, int]:
        return 72, 96

    def read_frames(self, index: int, start: int, stop: int, *, views, size) -> Views:
        block = Views(names=tuple(views), frames=np.full((stop - start, len(views), *size, 3), 99, np.uint8))
        self.alive.add(Alive(block))
        self.most = max(self.most, len(self.alive))
        return block


class Alive:
    """Lives as long as a block, which cannot be referred to weakly by a set: it has no hash."""

    def __init__(self, block: Views) -> None:
        object.__setattr__(block, "alive", self)


def test_a_video_is_never_held_whole_and_what_was_not_judged_is_not_drawn(tmp_path):
    source, run = LongVideo(), RunFolder.open(tmp_path)
    length = source.meta[0].length
    line = np.linspace(0, 1, length, dtype=np.float32)
    curve = RewardOutput(progress=line, valid=np.arange(length) != 7, subtask=np.zeros(length, np.int64), success=line * np.nan,
                     uncertainty=line, ood=np.where(line > 0.5, 1.5, np.nan))  # fmt: skip
    write_rerun(run, source, {0: plot_series(curve, 2.0)}, NullReporter())
    assert PREFETCH_COUNT <= source.most <= PREFETCH_COUNT + 3
    told = read(tmp_path / "long" / "video.rrd")
    assert {name for name in told if name.startswith("/prediction")} == {
        f"/prediction/{name}" for name in ("progress", "low", "high", "uncertainty", "ood")
    }
    assert told["/prediction/progress"]["frame"] == [t for t in range(length) if t != 7]
    assert told["/prediction/ood"]["frame"] == np.flatnonzero(line > 0.5).tolist()
    assert told["/subtask"]["frame"] == [1, 3, 5, 9]
    assert told["/subtask"]["StateChange:state"] == [["a"], ["b"], [None], ["c"]]
    videos = {name: video["frame"] for name, video in told.items() if name.startswith("/views")}
    assert list(videos.values()) == [list(range(length))] * 2 and "/views/front" in videos


def test_tall_images_are_made_smaller_and_others_are_not():
    source = LongVideo()
    assert display_size(source, 0) == (72, 96)
    source.image_size = lambda index: (720, 1280)
    assert display_size(source, 0) == (MAX_HEIGHT_PX, 640)


def test_without_the_package_it_is_named_before_anything_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("embodied_rm.cli.commands.score.find_spec", lambda name: None)
    assert main(["score", f"data={tmp_path}", "rerun=true", f"out={tmp_path / 'run'}"]) == 2
    assert "pip install 'embodied-rm[rerun]'" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
