"""Views of LeRobot datasets that are stored as encoded images in the data files, alone and beside videos."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_v21 import write_v21_dataset
from painted_frames import H, W, make_episode, paint_frames, read_numbers
from PIL import Image

from embodied_rm.data.block_reader import validate_episode
from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import DataError
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Frames

LENGTHS = (20, 7, 12)
DATA, INFO = "data/chunk-000/file-000.parquet", "meta/info.json"
VIEWS = ("front", "wrist")
NUMBERS = [[*range(100 * index, 100 * index + length)] for index, length in enumerate(LENGTHS)]


def encode(pixels: np.ndarray, image_format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, image_format, **options)
    return buffer.getvalue()


def key(view: str) -> str:
    return f"observation.images.{view}"


def store(path: Path, view: str, cells: Any, arrow_type: pa.DataType | None = None) -> None:
    """Store a view in the data file instead of its videos, in small row groups that cross the episodes."""
    table = pq.read_table(path / DATA)
    table = table.drop_columns([name for name in table.column_names if name == key(view)])
    pq.write_table(table.append_column(key(view), pa.array(cells, arrow_type)), path / DATA, row_group_size=9)
    shutil.rmtree(path / "videos" / key(view), ignore_errors=True)
    info = json.loads((path / INFO).read_text())
    shape = {"shape": [H, W, 3], "names": ["height", "width", "channels"]}
    info["features"][key(view)] = {"dtype": "image", **shape}
    if all(feature["dtype"] != "video" for feature in info["features"].values()):
        info["video_path"] = None
    (path / INFO).write_text(json.dumps(info))


def frames_of(view: str) -> Frames:
    return np.concatenate([make_episode(i, length).views[view] for i, length in enumerate(LENGTHS)])


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "data") as writer:
        for index, length in enumerate(LENGTHS):
            writer.add(make_episode(index, length))
    return tmp_path / "data"


@pytest.fixture
def images(videos: Path) -> Path:
    """A dataset of images alone, as LeRobot writes it with `use_videos=False`."""
    for view in VIEWS:
        store(videos, view, [{"bytes": encode(pixels), "path": None} for pixels in frames_of(view)])
    return videos


LAYOUTS: dict[str, Callable[[bytes], Any]] = {
    "struct": lambda encoded: {"bytes": encoded, "path": "frame-000000.png"},
    "struct without path": lambda encoded: {"bytes": encoded},
    "binary": lambda encoded: encoded,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP", "BMP"])
def test_images_are_views(videos: Path, layout: str, image_format: str) -> None:
    options = {} if image_format in ("PNG", "BMP") else {"quality": 95}
    for view in VIEWS:
        store(videos, view, [LAYOUTS[layout](encode(pixels, image_format, **options)) for pixels in frames_of(view)])
    source = open_dataset(videos)
    assert source.views == VIEWS and source.issues == ()
    for index, episode in enumerate(source):
        expected = make_episode(index, LENGTHS[index])
        for view in VIEWS:
            assert read_numbers(episode.views[view]) == NUMBERS[index]
            if image_format in ("PNG", "BMP"):
                assert np.array_equal(episode.views[view], expected.views[view])
        assert np.array_equal(episode.state, expected.state) and source.image_size(index) == (H, W)
        assert source.files(index) == (videos / DATA,) * 3


@pytest.mark.parametrize("arrow_type", [pa.large_binary(), pa.dictionary(pa.int32(), pa.binary())])
def test_other_types_of_bytes_are_read(videos: Path, arrow_type: pa.DataType) -> None:
    cells = [encode(pixels) for pixels in frames_of("wrist")]
    column = pa.array(cells, pa.binary()).cast(arrow_type) if arrow_type != pa.large_binary() else cells
    store(videos, "wrist", column, None if arrow_type != pa.large_binary() else arrow_type)
    assert [read_numbers(episode.views["wrist"]) for episode in open_dataset(videos)] == NUMBERS


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("struct", [False, True])
def test_images_may_be_files_of_the_dataset(videos: Path, struct: bool, absolute: bool) -> None:
    cells = []
    for number, pixels in enumerate(frames_of("wrist")):
        file = videos / "images" / key("wrist") / f"frame-{number:06d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode(pixels))
        path = str(file if absolute else file.relative_to(videos))
        cells.append({"bytes": None, "path": path} if struct else path)
    store(videos, "wrist", cells)
    source = open_dataset(videos)
    assert source.issues == () and [read_numbers(episode.views["wrist"]) for episode in source] == NUMBERS


def test_views_of_images_and_videos_are_read_together(videos: Path) -> None:
    store(videos, "wrist", [encode(pixels) for pixels in frames_of("wrist")])
    source = open_dataset(videos)
    assert source.views == VIEWS and source.issues == ()
    for index, episode in enumerate(source):
        assert read_numbers(episode.views["front"]) == read_numbers(episode.views["wrist"]) == NUMBERS[index]
        video, *data = source.files(index)
        assert video.suffix == ".mp4" and data == [videos / DATA] * 2
    names = FeatureMap(views={"wrist": "hand"}, orientation={"hand": "rotate_180"})
    turned = open_dataset(videos, feature_map=names).episode(1).views["hand"]
    assert np.array_equal(turned, make_episode(1, LENGTHS[1]).views["wrist"][:, ::-1, ::-1])


def test_blocks_sizes_and_strides(images: Path) -> None:
    source = open_dataset(images)
    block = source.read_frames(2, 5, 12, views=["wrist", "front"], size=None)
    assert read_numbers(block.frames[:, 0]) == NUMBERS[2][5:12]
    assert read_numbers(source.read_frames(0, 3, 6, views=["wrist"], size=None).frames[:, 0]) == [3, 4, 5]
    assert read_numbers(source.episode(0, stride=6).views["front"]) == [0, 6, 12, 18, 19]
    small = source.episode(1, size=(24, 36), stride=2)
    assert small.views["wrist"].shape == (4, 24, 36, 3) and read_numbers(small.views["wrist"]) == [100, 102, 104, 106]


def test_version_2_1(tmp_path: Path) -> None:
    path = write_v21_dataset(tmp_path / "old", [make_episode(i, length) for i, length in enumerate(LENGTHS)])
    for index, file in enumerate(sorted(path.glob("data/*/*.parquet"))):
        frames = make_episode(index, LENGTHS[index]).views["wrist"]
        cells = pa.array([{"bytes": encode(pixels), "path": None} for pixels in frames])
        pq.write_table(pq.read_table(file).append_column(key("wrist"), cells), file)
    for folder in path.glob(f"videos/*/{key('wrist')}"):
        shutil.rmtree(folder)
    info = json.loads((path / INFO).read_text())
    info["features"][key("wrist")]["dtype"] = "image"
    (path / INFO).write_text(json.dumps(info))
    source = open_dataset(path)
    assert source.issues == () and [read_numbers(episode.views["wrist"]) for episode in source] == NUMBERS


def test_images_are_converted_to_videos(images: Path, tmp_path: Path) -> None:
    assert convert_dataset(open_dataset(images), tmp_path / "new", NullReporter()) == []
    assert [read_numbers(episode.views["wrist"]) for episode in open_dataset(tmp_path / "new")] == NUMBERS


MODES: dict[str, Callable[[np.ndarray], bytes]] = {
    "gray": lambda pixels: encode(pixels.mean(-1).astype(np.uint8)),
    "transparent": lambda pixels: encode(np.concatenate([pixels, np.full((H, W, 1), 128, np.uint8)], -1)),
    "turned by its camera": lambda pixels: turned_jpeg(pixels),
}


def turned_jpeg(pixels: np.ndarray) -> bytes:
    """A JPEG that lies on its side, with the tag that says so."""
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a turn by 90 degrees clockwise
    return encode(np.ascontiguousarray(np.rot90(pixels)), "JPEG", exif=exif, quality=95)


@pytest.mark.parametrize("mode", MODES)
def test_images_are_read_as_viewers_show_them(videos: Path, mode: str) -> None:
    store(videos, "wrist", [MODES[mode](pixels) for pixels in frames_of("wrist")])
    source = open_dataset(videos)
    assert source.issues == () and [read_numbers(episode.views["wrist"]) for episode in source] == NUMBERS


def replace_cell(row: int, value: Any) -> Callable[[list[Any]], None]:
    return lambda cells: cells.__setitem__(row, value)


def state_size(size: int) -> bytes:
    """Return a PNG whose header states a size in pixels, far above that of its content."""
    png = encode(paint_frames([0])[0])
    header = png[12:16] + struct.pack(">II", size, size) + png[24:29]
    return png[:12] + header + struct.pack(">I", zlib.crc32(header)) + png[33:]


def state_place_as_fraction(tiff: bytes) -> bytes:
    """Return a TIFF that states the place of its pixels (tag 273) as a number of type 11, a fraction."""
    place = tiff.index(struct.pack("<H", 273))
    return tiff[: place + 2] + struct.pack("<HIf", 11, 1, 8.5) + tiff[place + 12 :]


TIFF = state_place_as_fraction(encode(paint_frames([0])[0], "TIFF"))
OUTSIDE = {"bytes": None, "path": "../secret.png"}
DAMAGES: dict[str, tuple[Callable[[list[Any]], None], str]] = {
    "text": (replace_cell(20, {"bytes": b"<html>", "path": None}), "of row 20 is no image (PNG, JPEG, "),
    "cut": (lambda cells: cells[26].update(bytes=cells[26]["bytes"][:-40]), "of row 26 is not an intact image ("),
    "huge": (replace_cell(20, {"bytes": state_size(20_000), "path": None}), "it claims to be 20000x20000"),
    "large": (replace_cell(20, {"bytes": state_size(10_000), "path": None}), "it claims to be 10000x10000"),
    "place": (replace_cell(20, {"bytes": TIFF, "path": None}), "of row 20 is not an intact image ('float' object"),
    "null": (replace_cell(20, None), "of row 20: it holds NoneType, neither an image nor the path of one"),
    "empty struct": (replace_cell(26, {"bytes": None, "path": None}), "of row 26: it holds NoneType"),
    "missing file": (replace_cell(20, {"bytes": None, "path": "a.png"}), "the file 'a.png' does not exist in the data"),
    "file outside": (replace_cell(20, OUTSIDE), "'../secret.png' leads out of the dataset's folder"),
    "other size": (replace_cell(20, {"bytes": encode(paint_frames([0], 24, 32)[0]), "path": None}), "24x32, 48x64"),
    "depth": (
        replace_cell(20, {"bytes": encode(np.zeros((H, W), np.uint16)), "path": None}),
        "its pixels are I;16, a depth map; features.views selects views",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_image_excludes_its_episode(images: Path, damage: str, capfd: pytest.CaptureFixture[str]) -> None:
    (images.parent / "secret.png").write_bytes(encode(paint_frames([0])[0]))
    change, message = DAMAGES[damage]
    cells = pq.read_table(images / DATA)[key("wrist")].to_pylist()
    change(cells)
    store(images, "wrist", cells)
    source = open_dataset(images)
    (issue,) = source.issues
    assert capfd.readouterr().err == "", "the process that reads the images says nothing of its own"
    assert issue.file == images / DATA and issue.episodes == ("trial_1",) and message in issue.message
    assert [read_numbers(episode.views["wrist"]) for episode in source] == [NUMBERS[0], NUMBERS[2]]


def test_a_damaged_image_in_the_middle_is_found_by_decoding(images: Path) -> None:
    cells = pq.read_table(images / DATA)[key("wrist")].to_pylist()
    cells[23] = {"bytes": b"\x89PNG", "path": None}
    store(images, "wrist", cells)
    source = open_dataset(images)
    assert source.issues == ()
    (issue,) = (issue for issue in validate_episode(source, 1) if not issue.is_note)
    assert issue.episodes == ("trial_1",) and issue.file == images / DATA
    assert f"{key('wrist')} of row 23 is no" in issue.message
    assert [issue for index in (0, 2) for issue in validate_episode(source, index) if not issue.is_note] == []


def test_images_of_another_size_than_stated_are_refused(images: Path) -> None:
    info = json.loads((images / INFO).read_text())
    info["features"][key("wrist")]["shape"] = [96, 128, 3]
    (images / INFO).write_text(json.dumps(info))
    with pytest.raises(DataError, match=r"its images are 48x64, info.json states 96x128"):
        open_dataset(images)


def test_a_feature_of_images_without_a_column_is_left_out_and_reported(videos: Path) -> None:
    info = json.loads((videos / INFO).read_text())
    info["features"][key("ego")] = {**info["features"][key("front")], "dtype": "image"}
    (videos / INFO).write_text(json.dumps(info))
    source = open_dataset(videos)
    assert source.views == VIEWS
    assert [issue.message for issue in source.issues] == [f"lists {key('ego')}, which has no images: left out"]


@pytest.mark.parametrize("info_key", ["info", "video_info"])
def test_depth_is_no_view(images: Path, info_key: str) -> None:
    store(images, "depth", [encode(np.zeros((H, W), np.uint16))] * sum(LENGTHS))
    info = json.loads((images / INFO).read_text())
    info["features"][key("depth")][info_key] = {"is_depth_map": True}
    (images / INFO).write_text(json.dumps(info))
    source = open_dataset(images)
    assert source.views == VIEWS and source.issues == ()


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_depth_that_is_not_marked_is_left_out_and_reported(images: Path, dtype: type) -> None:
    pixels = np.zeros((H, W), dtype)
    store(images, "depth", [encode(pixels, "PNG" if dtype is np.uint16 else "TIFF")] * sum(LENGTHS))
    source = open_dataset(images)
    assert source.views == VIEWS and [read_numbers(episode.views["wrist"]) for episode in source] == NUMBERS
    assert [(issue.message, issue.episodes) for issue in source.issues] == [
        (f"lists {key('depth')}, whose images are depth maps: left out", ())
    ]


def test_depth_alone_is_refused(images: Path) -> None:
    for view in VIEWS:
        store(images, view, [encode(np.zeros((H, W), np.uint16))] * sum(LENGTHS))
    with pytest.raises(DataError, match=r"its pixels are I;16, a depth map; features\.views selects views"):
        open_dataset(images)


def test_a_column_of_numbers_is_no_images(videos: Path) -> None:
    store(videos, "wrist", list(range(sum(LENGTHS))))
    with pytest.raises(DataError, match="of row 0: it holds int, neither an image nor the path of one"):
        open_dataset(videos)


def test_a_long_row_group_never_has_to_fit_into_memory(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 MB of images in one row group: the decoder reads them in parts."""
    monkeypatch.setattr("embodied_rm.data.subprocess_worker._IDLE", {})  # a new process
    before = memory_mb(open_dataset(images))
    rng = np.random.default_rng(0)
    noise = [encode(rng.integers(0, 255, (H, W, 3), np.uint8)) for _ in range(8)]
    rows = 4400
    table = pa.table({
        "episode_index": np.zeros(rows, np.int64), "frame_index": np.arange(rows), "index": np.arange(rows),
        "task_index": np.zeros(rows, np.int64), "timestamp": (np.arange(rows) / 10).astype(np.float32),
        key("wrist"): [noise[i % 8] for i in range(rows)],
    })  # fmt: skip
    pq.write_table(table, images / DATA, row_group_size=rows, use_dictionary=False, write_batch_size=64)
    info = json.loads((images / INFO).read_text())
    names = {*table.column_names}
    info["features"] = {name: feature for name, feature in info["features"].items() if name in names}
    info |= {"total_episodes": 1, "total_frames": rows, "total_tasks": 2}
    (images / INFO).write_text(json.dumps(info))
    episodes = images / "meta/episodes/chunk-000/file-000.parquet"
    listed = pq.read_table(episodes).slice(0, 1)
    listed = listed.drop_columns([name for name in listed.column_names if "subtask" in name])
    pq.write_table(listed.set_column(listed.column_names.index("length"), "length", pa.array([rows])), episodes)
    source = open_dataset(images)
    for start in range(0, rows, 400):
        frames = source.read_frames(0, start, start + 16, views=["wrist"], size=None).frames
        assert np.array_equal(frames[3, 0], np.asarray(Image.open(io.BytesIO(noise[3]))))
    assert memory_mb(source) - before < 25


def memory_mb(source: Any) -> float:
    """Largest memory so far of the process that decodes."""
    status = Path(f"/proc/{source._stored.images._process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
