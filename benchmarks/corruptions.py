"""Corruptions of datasets, each applied to some episodes; for corrupted_dataset.py and the tests."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lerobot_v21 import DATA_PATH, EPISODES_PER_CHUNK, VIDEO_PATH, write_v21_dataset

from embodied_rm.data.block_reader import validate_episode
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.issues import DataIssue, affected_episodes
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.video.files import write_video
from embodied_rm.types import Episode, Frames

NUM_FRAMES, IMAGE_SIZE, FPS = 12, (32, 48), 10.0
VIEWS = ("front", "wrist")
EPISODES_FILE = "meta/episodes.jsonl"
CorruptionFn = Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class CorruptionResult:
    """Result of validating a corrupted dataset."""

    num_kinds: int
    corrupted: set[str]
    """Corrupted episodes."""
    reported: set[str]
    """Episodes that the validation names."""
    altered: list[str]
    """Intact episodes whose images or numbers differ from those of the intact dataset."""
    misreported: list[str]
    """Kinds with an episode whose message does not fit the kind."""


def make_images(index: int, length: int = NUM_FRAMES, size: tuple[int, int] = IMAGE_SIZE) -> Frames:
    """Return smooth images, uint8 [T, H, W, 3], that differ in every frame of every episode."""
    height, width = size
    y, x = np.mgrid[:height, :width]
    t = np.arange(length)[:, None, None]
    shades = [2.0 * x + 5 * t, 3.0 * y + index % 97, x + y + 7 * t + index // 97]
    return np.stack([np.broadcast_to(shade, (length, height, width)) % 256 for shade in shades], -1).astype(np.uint8)


def make_episode(index: int) -> Episode:
    """Return an intact episode."""
    rng = np.random.default_rng(index)
    return Episode(
        name=f"episode_{index:06d}",
        views={view: make_images(2 * index + i) for i, view in enumerate(VIEWS)},
        instruction=f"do thing {index % 3}",
        fps=FPS,
        state=rng.normal(size=(NUM_FRAMES, 5)).astype(np.float32),
        action=rng.normal(size=(NUM_FRAMES, 3)).astype(np.float32),
    )


def video_path(root: Path, index: int) -> Path:
    """Return the path of the video of an episode's second view."""
    return root / VIDEO_PATH.format(index // EPISODES_PER_CHUNK, index, VIEWS[1])


def table_path(root: Path, index: int) -> Path:
    """Return the path of an episode's table."""
    return root / DATA_PATH.format(index // EPISODES_PER_CHUNK, index)


# Corruptions of videos


def delete_file(path: Path) -> None:
    path.unlink()


def truncate_to_empty(path: Path) -> None:
    path.write_bytes(b"")


def write_lfs_pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n")


def write_web_page(path: Path) -> None:
    path.write_text("<!DOCTYPE html><html><body>404: not found</body></html>\n" * 20)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def drop_frame(path: Path) -> None:
    write_video(path, make_images(0, NUM_FRAMES - 1), FPS)


def add_frame(path: Path) -> None:
    write_video(path, make_images(0, NUM_FRAMES + 1), FPS)


def shrink_images(path: Path) -> None:
    write_video(path, make_images(0, NUM_FRAMES, (16, 24)), FPS)


def double_frame_rate(path: Path) -> None:
    write_video(path, make_images(0), 2 * FPS)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def move_outside(path: Path) -> None:
    target = path.parents[4] / f"elsewhere-{path.stem}.mp4"
    path.rename(target)
    path.symlink_to(target)


def change_codec(path: Path) -> None:
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("mpeg2video", rate=25)
        stream.height, stream.width, stream.pix_fmt = *IMAGE_SIZE, "yuv420p"
        for frame in make_images(0):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24").reformat(format="yuv420p")))
        container.mux(stream.encode())


def corrupt_packet(path: Path) -> None:
    """Overwrite an image in the middle of the video, neither the first nor the last."""
    with av.open(str(path)) as container:
        packets = [(p.pos, p.size) for p in container.demux(video=0) if p.size]
    offset, size = packets[len(packets) // 2]
    assert offset is not None
    content = bytearray(path.read_bytes())
    content[offset : offset + size] = b"\xff" * size
    path.write_bytes(content)


# Corruptions of tables


def edit_table(edit: Callable[[pa.Table], pa.Table]) -> CorruptionFn:
    return lambda path: pq.write_table(edit(pq.read_table(path)), path)


def set_cell(column: str, row: int, value: object) -> CorruptionFn:
    """Return a corruption that replaces the value of one row."""

    def edit(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = value
        index = table.column_names.index(column)
        return table.set_column(index, column, pa.array(values, table.schema.field(column).type))

    return edit_table(edit)


def timestamps_to_text(table: pa.Table) -> pa.Table:
    index = table.column_names.index("timestamp")
    return table.set_column(index, "timestamp", pa.array([str(t) for t in table["timestamp"].to_pylist()]))


def set_nan(path: Path) -> None:
    num_rows = pq.read_metadata(path).num_rows
    states = pq.read_table(path)["observation.state"].to_pylist()
    set_cell("observation.state", num_rows // 2, [float("nan"), *states[0][1:]])(path)


# Corruptions of the list of episodes


def edit_entry(**fields: object) -> Callable[[str], str]:
    return lambda line: json.dumps({**json.loads(line), **fields})


VIDEO_CORRUPTIONS: dict[str, tuple[CorruptionFn, str]] = {
    "video missing": (delete_file, "the video file does not exist"),
    "video empty": (truncate_to_empty, "the video file is empty"),
    "video a git-lfs pointer": (write_lfs_pointer, "git-lfs pointer"),
    "video a web page": (write_web_page, "none of the videos that are read"),
    "video cut in half": (cut_in_half, "is cut short"),
    "video cut at its end": (cut_end, "is cut short"),
    "video a frame too short": (drop_frame, f"has {NUM_FRAMES - 1} frames of episode"),
    "video a frame too long": (add_frame, f"has {NUM_FRAMES + 1} frames"),
    "video of another size": (shrink_images, "its images are 16x24"),
    "video of another rate": (double_frame_rate, "s off 10 frames per second"),
    "video a folder": (replace_by_folder, "not a regular file"),
    "video a link out of the dataset": (move_outside, "leads out of the dataset's folder"),
    "video of an unknown codec": (change_codec, "codec 'mpeg2video' is not supported"),
    "video damaged in its middle": (corrupt_packet, ""),
}
TABLE_CORRUPTIONS: dict[str, tuple[CorruptionFn, str]] = {
    "rows missing": (delete_file, "the parquet file does not exist"),
    "rows without footer": (cut_in_half, "cut short or not parquet"),
    "rows a git-lfs pointer": (write_lfs_pointer, "git-lfs pointer"),
    "rows a web page": (write_web_page, "cut short or not parquet"),
    "last row missing": (edit_table(lambda table: table.slice(0, NUM_FRAMES - 1)), f"has {NUM_FRAMES - 1} rows"),
    "a row missing in between": (
        edit_table(lambda table: table.take([*range(4), *range(5, NUM_FRAMES)])),
        f"has {NUM_FRAMES - 1} rows",
    ),
    "time goes back": (set_cell("timestamp", 6, 0.1), "timestamp falls from 0.500 to 0.100 s in frame 6"),
    "time missing": (set_cell("timestamp", 6, None), "timestamp is nan in frame 6"),
    "time as text": (edit_table(timestamps_to_text), "holds string where numbers are expected"),
    "frame counted twice": (set_cell("frame_index", 6, 5), "frame_index is 5 in frame 6"),
    "row of another episode": (set_cell("episode_index", 6, 7_777), f"has {NUM_FRAMES - 1} rows"),
    "gap in the index": (set_cell("index", 6, 123_456), "index is 123456 in frame 6"),
    "unknown task": (set_cell("task_index", 6, 99), "names no task"),
    "column missing": (edit_table(lambda table: table.drop_columns("action")), "column action is missing"),
    "number missing": (set_cell("action", 6, None), "action is missing in a row"),
    "number not finite": (set_nan, f"is not finite at frame {NUM_FRAMES // 2}"),
    "row of another length": (set_cell("action", 6, [0.0]), "rows of different length"),
}
ENTRY_CORRUPTIONS: dict[str, tuple[Callable[[str], str], str]] = {
    "entry cut": (lambda line: line[: len(line) // 2], "is not valid JSON"),
    "entry without length": (edit_entry(length=None), "has length None"),
    "entry of no frames": (edit_entry(length=0), "has length 0"),
    "entry without instruction": (edit_entry(tasks=[]), "has no tasks"),
    "entry of another length": (edit_entry(length=NUM_FRAMES + 1), f"has {NUM_FRAMES} rows of episode"),
    "entry missing": (lambda line: "", "is not listed"),
    "entry twice": (lambda line: f"{line}\n{line}", "is listed 2 times"),
}
CORRUPTION_KINDS = [*VIDEO_CORRUPTIONS, *TABLE_CORRUPTIONS, *ENTRY_CORRUPTIONS]


def corrupt_dataset(root: Path, episodes: int, per_kind: int) -> dict[str, str]:
    """Apply every kind of corruption to `per_kind` random episodes; return episode -> kind."""
    assert len(CORRUPTION_KINDS) * per_kind < episodes
    chosen = np.random.default_rng(0).permutation(episodes)[: len(CORRUPTION_KINDS) * per_kind].tolist()
    kind_of_index = dict(zip(chosen, itertools.cycle(CORRUPTION_KINDS), strict=False))
    lines = (root / EPISODES_FILE).read_text().splitlines()
    for index, kind in kind_of_index.items():
        if kind in VIDEO_CORRUPTIONS:
            VIDEO_CORRUPTIONS[kind][0](video_path(root, index))
        elif kind in TABLE_CORRUPTIONS:
            TABLE_CORRUPTIONS[kind][0](table_path(root, index))
        else:
            lines[index] = ENTRY_CORRUPTIONS[kind][0](lines[index])
    (root / EPISODES_FILE).write_text("\n".join(lines))
    return {f"episode_{index:06d}": kind for index, kind in kind_of_index.items()}


def find_issues(source: EpisodeSource) -> Iterator[DataIssue]:
    """Yield all issues of a dataset, including those inside its files."""
    yield from source.issues
    for index in range(len(source)):
        yield from validate_episode(source, index)


def run_trial(folder: Path, *, episodes: int, per_kind: int) -> CorruptionResult:
    """Write a dataset, corrupt a copy, validate it and read its intact episodes."""
    intact = write_v21_dataset(folder / "intact", [make_episode(i) for i in range(episodes)])
    root = folder / "corrupted"
    shutil.copytree(intact, root)
    kind_of_episode = corrupt_dataset(root, episodes, per_kind)
    source = open_dataset(root, feature_map=FeatureMap(max_drift_s=0.5 / FPS))
    issues = list(find_issues(source))
    reported = set(affected_episodes(issues))
    expected_texts = {
        **{k: text for k, (_, text) in VIDEO_CORRUPTIONS.items()},
        **{k: text for k, (_, text) in TABLE_CORRUPTIONS.items()},
    }
    expected_texts |= {k: text for k, (_, text) in ENTRY_CORRUPTIONS.items()}
    misreported = {
        kind
        for name, kind in kind_of_episode.items()
        if not any(name in issue.episodes and expected_texts[kind] in issue.message for issue in issues)
    }
    return CorruptionResult(
        num_kinds=len(CORRUPTION_KINDS),
        corrupted=set(kind_of_episode),
        reported=reported,
        altered=altered_episodes(open_dataset(intact), source, reported),
        misreported=sorted(misreported),
    )


def altered_episodes(intact: EpisodeSource, source: EpisodeSource, reported: set[str]) -> list[str]:
    """Return the unreported episodes of `source` that are not bit-identical to those of the intact dataset."""
    row_of_name = {meta.name: row for row, meta in enumerate(intact.meta)}
    intact_rows = [row for row, meta in enumerate(source.meta) if meta.name not in reported]
    missing = set(row_of_name) - reported - {source.meta[row].name for row in intact_rows}
    return sorted(missing) + [
        source.meta[row].name
        for row in intact_rows
        if not equal_episodes(source.episode(row), intact.episode(row_of_name[source.meta[row].name]))
    ]


def equal_episodes(first: Episode, second: Episode) -> bool:
    """Return whether images, numbers and instructions are equal."""
    same_videos = all(np.array_equal(first.views[view], second.views[view]) for view in VIEWS)
    same_values = np.array_equal(first.state, second.state) and np.array_equal(first.action, second.action)  # type: ignore[arg-type]
    return same_videos and same_values and first.instruction == second.instruction
