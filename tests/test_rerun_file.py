"""Recordings of `score rerun=true`, read with Rerun's own reader: videos, curves, texts and layout."""

from __future__ import annotations

import errno
import io
import resource
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
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
from embodied_rm.errors import DataError
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.report.rerun_export import MAX_HEIGHT_PX, display_size, write_rerun
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import TABLE_FILE, plot_series
from embodied_rm.training import TrainConfig, make_net
from embodied_rm.types import RewardOutput, Subtask, Views

CURVES = ("progress", "low", "high", "success", "uncertainty")
EPISODE_NAMES = {0: "sprite_000_carry", 2: "sprite_002_carry"}
"""Index -> name of the scored episodes."""
Table = dict[str, list]


def read_recording(path: Path, *, blueprint: bool = False) -> dict[str, Table]:
    """Return entity -> column -> values, in frame order. Static columns have one value."""
    reader, tables = RrdReader(path), dict[str, Table]()
    stream = reader.stream(store=reader.blueprints()[0]) if blueprint else reader.stream()
    for chunk in stream:
        table = tables.setdefault(chunk.entity_path, {})
        batch = chunk.to_record_batch()
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name != "rerun.controls.RowId":
                # datetime.timedelta has no nanoseconds, int64 has.
                numeric = column.cast("int64") if pa.types.is_temporal(column.type) else column
                table.setdefault(name, []).extend(numeric.to_pylist())
    for table in tables.values():
        order = np.argsort(table.get("frame", []), kind="stable")
        table.update({name: [values[i] for i in order] for name, values in table.items() if len(values) == len(order)})
    return tables


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder with two of three episodes scored. `data` is next to it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("rerun")
    with DatasetWriter(folder / "data") as writer:
        for recorded in [*episodes(2), episode(2, success=False, length=70)]:
            writer.add(recorded)
    config = TrainConfig(image_size=(32, 32))
    save_progress_net(folder / "model", make_net(episodes(2), config).eval(), {})
    settings = [
        "episode_indices=[0,2]",
        "rerun=true",
        "plots=false",
        "videos=false",
        "report_episodes=0",
        f"out={folder / 'run'}",
    ]
    assert main(["score", f"data={folder / 'data'}", f"checkpoint={folder / 'model'}", *settings]) == 0
    return folder / "run"


def test_every_scored_episode_has_a_complete_file(scored):
    assert sorted(path.name for path in (scored / "episodes").iterdir() if ".rrd" in path.name) == [
        f"{n}.rrd" for n in EPISODE_NAMES.values()
    ]
    for path in scored.glob("episodes/*.rrd"):
        RrdReader(path).store()  # fails for an incomplete file


@pytest.mark.parametrize("number", [0, 2])
def test_curves_match_the_score_table(scored, number):
    recording = read_recording(scored / f"episodes/{EPISODE_NAMES[number]}.rrd")
    table = pq.read_table(scored / TABLE_FILE, filters=[("episode_index", "=", number)]).to_pydict()
    frames = table["frame_index"]
    progress, uncertainty = (np.float32(table[name]) for name in ("progress_dense", "uncertainty"))
    expected = {
        "progress": progress,
        "low": np.clip(progress - uncertainty, 0, 1),
        "high": np.clip(progress + uncertainty, 0, 1),
        "success": np.float32(table["success"]),
        "uncertainty": uncertainty,
    }
    for name in CURVES:
        line = recording[f"/prediction/{name}"]
        assert line["frame"] == frames and line["SeriesLines:names"] == [[name]]
        np.testing.assert_allclose(np.array(line["time"]) / 1e9, np.array(frames) / 10, atol=1e-6)
        np.testing.assert_allclose(np.array(line["Scalars:scalars"])[:, 0], expected[name], atol=1e-6)
    assert "/prediction/ood" not in recording, "this model predicts no OOD score"


@pytest.mark.parametrize("number", [0, 2])
def test_recording_has_every_frame_of_every_view(scored, number):
    recording, stored = (
        read_recording(scored / f"episodes/{EPISODE_NAMES[number]}.rrd"),
        open_dataset(scored.parent / "data").episode(number),
    )
    assert {name for name in recording if name.startswith("/views")} == {"/views/front", "/views/top"}
    for view, frames in stored.views.items():
        video = recording[f"/views/{view}"]
        assert video["frame"] == list(range(len(frames)))
        assert video["EncodedImage:media_type"] == [["image/jpeg"]] * len(frames)
        for (blob,), frame in zip(video["EncodedImage:blob"], frames, strict=True):
            with Image.open(io.BytesIO(bytes(blob))) as image:
                assert image.format == "JPEG"
                assert np.abs(np.asarray(image).astype(int) - frame).mean() < 6


def test_recording_has_instruction_and_subtasks(scored):
    success, failure = (read_recording(scored / f"episodes/{EPISODE_NAMES[number]}.rrd") for number in (0, 2))
    assert success["/instruction"]["TextDocument:text"] == [[episode(0).instruction]]
    subtasks = [(subtask.start, [subtask.name]) for subtask in episode(0).subtasks]
    assert list(zip(success["/subtask"]["frame"], success["/subtask"]["StateChange:state"], strict=True)) == subtasks
    assert success["/__properties"]["RecordingInfo:name"] == [[EPISODE_NAMES[0]]]
    assert failure["/subtask"]["frame"][0] == 0


def test_layout_has_views_above_curves(scored):
    recording = read_recording(scored / f"episodes/{EPISODE_NAMES[0]}.rrd", blueprint=True)
    containers = {path: contents for path, (contents,) in with_column(recording, "ContainerBlueprint:contents")}
    view_types = {path: view_type for path, ((view_type,),) in with_column(recording, "ViewBlueprint:class_identifier")}
    (column,) = (contents for contents in containers.values() if len(contents) == 5)
    order = [
        view_types[item] if item in view_types else [view_types[view] for view in containers[item]] for item in column
    ]
    assert order == ["TextDocument", ["2D", "2D"], "TimeSeries", "TimeSeries", "StateTimeline"]
    queries = {query for _, (contents,) in with_column(recording, "ViewContents:query") for query in contents}
    assert {f"prediction/{name}" for name in CURVES} <= queries and "prediction/ood" not in queries
    assert recording["/time_panel"]["TimePanelBlueprint:timeline"] == [["time"]]


def with_column(recording: dict[str, Table], column: str) -> list[tuple[str, list]]:
    """Return (entity as named in a blueprint, values) of the entities with this column."""
    return [(path.removeprefix("/"), table[column]) for path, table in recording.items() if column in table]


class LongVideo:
    """Source of one long gray video that counts its live blocks."""

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
        self.live_blocks: weakref.WeakSet = weakref.WeakSet()
        self.max_live_blocks = 0

    def __len__(self) -> int:
        return 1

    def frame_rate(self, index: int) -> float:
        return self.fps

    def image_size(self, index: int) -> tuple[int, int]:
        return 72, 96

    def read_frames(self, index: int, start: int, stop: int, *, views, size) -> Views:
        block = Views(names=tuple(views), frames=np.full((stop - start, len(views), *size, 3), 99, np.uint8))
        self.live_blocks.add(BlockToken(block))
        self.max_live_blocks = max(self.max_live_blocks, len(self.live_blocks))
        return block


class BlockToken:
    """Lives as long as a block. A block has no hash, so a `WeakSet` cannot hold it."""

    def __init__(self, block: Views) -> None:
        object.__setattr__(block, "token", self)


def test_export_has_bounded_memory_and_skips_invalid_frames(tmp_path):
    source, run = LongVideo(), RunFolder.open(tmp_path)
    length = source.meta[0].length
    values = np.linspace(0, 1, length, dtype=np.float32)
    curve = RewardOutput(
        progress=values,
        valid=np.arange(length) != 7,
        subtask=np.zeros(length, np.int64),
        success=values * np.nan,
        uncertainty=values,
        ood=np.where(values > 0.5, 1.5, np.nan),
    )
    write_rerun(run, source, {0: plot_series(curve, 2.0)}, NullReporter())
    assert PREFETCH_COUNT <= source.max_live_blocks <= PREFETCH_COUNT + 3
    recording = read_recording(tmp_path / "episodes/long/video.rrd")
    assert {name for name in recording if name.startswith("/prediction")} == {
        f"/prediction/{name}" for name in ("progress", "low", "high", "uncertainty", "ood")
    }
    assert recording["/prediction/progress"]["frame"] == [t for t in range(length) if t != 7]
    assert recording["/prediction/ood"]["frame"] == np.flatnonzero(values > 0.5).tolist()
    assert recording["/subtask"]["frame"] == [1, 3, 5, 9]
    assert recording["/subtask"]["StateChange:state"] == [["a"], ["b"], [None], ["c"]]
    videos = {name: video["frame"] for name, video in recording.items() if name.startswith("/views")}
    assert list(videos.values()) == [list(range(length))] * 2 and "/views/front" in videos


def test_only_tall_images_are_downscaled():
    source = LongVideo()
    assert display_size(source, 0) == (72, 96)
    source.image_size = lambda index: (720, 1280)
    assert display_size(source, 0) == (MAX_HEIGHT_PX, 640)


def test_missing_rerun_package_is_reported_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("embodied_rm.cli.commands.score.find_spec", lambda name: None)
    assert main(["score", f"data={tmp_path}", "rerun=true", f"out={tmp_path / 'run'}"]) == 2
    assert "pip install 'embodied-rm[rerun]'" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("max_bytes", [1 << 12, 1 << 16])
def test_a_file_that_the_system_refuses_to_write_is_not_left_as_a_whole_one(max_bytes, tmp_path):
    """Rerun only logs the refusal, and its `flush` then waits for ever."""
    source, run = LongVideo(), RunFolder.open(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        with pytest.raises(OSError) as refusal:
            write_rerun(run, source, {0: {}}, NullReporter())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refusal.value.errno == errno.EFBIG
    assert list((tmp_path / "episodes/long").iterdir()) == []


def test_a_damaged_video_ends_the_export(tmp_path):
    source, run = LongVideo(), RunFolder.open(tmp_path)
    source.read_frames = lambda *args, **options: (_ for _ in ()).throw(DataError("front.mp4: is damaged"))
    with pytest.raises(DataError, match="is damaged"):
        write_rerun(run, source, {0: {}}, NullReporter())
    assert list((tmp_path / "episodes/long").iterdir()) == []
