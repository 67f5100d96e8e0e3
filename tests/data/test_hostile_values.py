"""A bad value excludes its episode by name, in `inspect` as in `convert`, and no other one; no text leads a writer out
of its folder. Each case has its own episode, in one dataset per layout.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_v21 import write_v21_dataset
from painted_frames import make_episode, paint_frames

from embodied_rm.data.block_reader import validate_episode
from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.names import MAX_NAME_BYTES
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Episode

LENGTH = 6
EPISODES, DATA = "meta/episodes/chunk-000/file-000.parquet", "data/chunk-000/file-000.parquet"
DEEP = "[" * 100_000 + "]" * 100_000
HALF = "a\ud800b"  # half of a character of UTF-16
EMOJI = "\U0001f600" * MAX_NAME_BYTES
NAMES = {
    "half of a character": HALF,
    "200 emoji": EMOJI,
    "leads out": "/../../../../evil",
    "dots": "..",
    "NUL": "a\0b",
    "line": "a\nb",
    "Windows": "a\\..\\b",
    "empty": "",
    "absolute": "/tmp/evil",
}
"""Texts after which no file may be named."""


def check_excluded(root: Path, excluded: set[str], count: int) -> EpisodeSource:
    """Check that inspection names these episodes of `count` and no others, and that conversion leaves out the same."""
    source = open_dataset(root)
    issues = [*source.issues, *(issue for index in range(len(source)) for issue in validate_episode(source, index))]
    assert set(affected_episodes(issues)) == excluded
    target = root.parent / "converted"
    unread = convert_dataset(source, target, NullReporter())
    assert {*affected_episodes(source.issues), *affected_episodes(unread)} == excluded
    assert len(open_dataset(target)) == count - len(excluded)
    assert {path.name for path in root.parent.iterdir()} == {root.name, "converted"}, "nothing is written elsewhere"
    return source


def write_lerobot(root: Path, count: int) -> Path:
    with DatasetWriter(root) as writer:
        for index in range(count):
            writer.add(make_episode(index, LENGTH, views=("front",)))
    return root


def edit_cell(path: Path, name: str, row: int, value: Any) -> None:
    """Replace a value in a table; the type of its column follows the values."""
    table = pq.read_table(path)
    values = table[name].to_pylist()
    values[row] = value
    is_large = isinstance(value, int) and value > 2**63
    column = pa.array(values, pa.uint64() if is_large else None)
    pq.write_table(table.set_column(table.column_names.index(name), name, column), path)


def set_bytes(path: Path, name: str, row: int) -> None:
    """Replace a text in a table, or the only one in a list, by bytes that are not UTF-8."""
    table = pq.read_table(path)
    values = [value[0] if isinstance(value, list) else value for value in table[name].to_pylist()]
    content = pa.array([b"\xff\xfe" if i == row else text and text.encode() for i, text in enumerate(values)])
    texts = pa.Array.from_buffers(pa.string(), len(content), content.buffers())
    if pa.types.is_list(table.schema.field(name).type):
        texts = pa.ListArray.from_arrays(range(len(texts) + 1), texts)
    pq.write_table(table.set_column(table.column_names.index(name), name, texts), path)


LEROBOT: tuple[tuple[str, Any], ...] = (
    ("subtask_start_frames", [1, 2]),  # overlap
    ("subtask_start_frames", [None, 3]),
    ("subtask_start_frames", [0.5, 3.0]),
    ("subtask_end_frames", [3, 7]),  # after the last frame
    ("length", 2**62),
    ("length", 2**64 - 1),
    ("dataset_from_index", 2**64 - 1),
    ("data/file_index", 2**64 - 1),
)
"""Values of `meta/episodes`."""
FRAMES: tuple[tuple[str, Any], ...] = (
    ("index", 2**60 + 1),
    ("index", 2**64 - 1),
    ("task_index", 0.5),
    ("progress", 7.5),
    ("progress", -0.1),
)
"""Values of one frame."""


def test_bad_values_of_lerobot(tmp_path: Path) -> None:
    count = len(LEROBOT) + len(FRAMES) + 5
    root = write_lerobot(tmp_path / "place/dataset", count)
    bad = list(range(1, 1 + len(LEROBOT) + len(FRAMES)))
    for index, (name, value) in zip(bad, LEROBOT + FRAMES, strict=True):
        in_frames = index > len(LEROBOT)
        edit_cell(root / (DATA if in_frames else EPISODES), name, index * LENGTH + 2 if in_frames else index, value)
    excluded = {f"trial_{index}" for index in bad}
    edit_cell(root / EPISODES, "name", count - 1, EMOJI)
    edit_cell(root / EPISODES, "tasks", count - 2, [None])  # the frames name their task
    set_bytes(root / EPISODES, "text/task", count - 3)
    set_bytes(root / EPISODES, "tasks", count - 4)
    check_excluded(root, excluded | {EMOJI, f"trial_{count - 3}", f"trial_{count - 4}"}, count)


def test_columns_that_are_not_read_may_hold_anything(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "place/dataset", 2)
    table = pq.read_table(root / EPISODES)
    for values in (pa.array(["a", "b"]), pa.array(["a", "b"]), pa.array([2**40, 2**50], pa.timestamp("s"))):
        table = table.append_column("robot" if values.type == pa.string() else "time", values)
    pq.write_table(table.append_column("operator", pa.array(["a", "b"])), root / EPISODES)
    check_excluded(root, set(), 2)


def test_progress_of_two_values_a_frame_excludes_its_episodes(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "dataset", 2)
    table = pq.read_table(root / DATA).drop_columns(["progress"])
    pq.write_table(table.append_column("progress", pa.array([[0.1, 0.2]] * len(table))), root / DATA)
    source = open_dataset(root)
    assert [bool(validate_episode(source, index)) for index in range(2)] == [True, True]


LINES = (
    DEEP,
    '{"episode_index": 2, "length": ' + "9" * 5000 + ', "tasks": ["a"]}',
    '{"episode_index": 3, "length": 1' + "0" * 30 + ', "tasks": ["a"]}',
    '{"episode_index": 4, "length": 6, "tasks": ["a\\ud800b"]}',
)


def test_bad_lines_of_lerobot(tmp_path: Path) -> None:
    count = len(LINES) + 2
    episodes = [make_episode(index, LENGTH, views=("front",)) for index in range(count)]
    root = write_v21_dataset(tmp_path / "place/dataset", episodes)
    first, *_, last = (root / "meta/episodes.jsonl").read_text().splitlines()
    (root / "meta/episodes.jsonl").write_text("\n".join((first, *LINES, last)))
    check_excluded(root, {f"episode_{index + 1:06d}" for index in range(len(LINES))}, count)


def test_separators_inside_of_json_strings_end_no_line(tmp_path: Path) -> None:
    episodes = [make_episode(index, LENGTH, views=("front",)) for index in range(3)]
    root = write_v21_dataset(tmp_path / "place/dataset", episodes)
    for name in ("meta/episodes.jsonl", "meta/tasks.jsonl"):
        text = (root / name).read_text()
        (root / name).write_text(text.replace("do thing 0", "do\u2028thing\x850").replace("do thing 1", "a\u2029b"))
    source = check_excluded(root, set(), 3)
    assert [meta.instruction for meta in source.meta] == ["do thing 0", "a b", "do thing 0"]


def test_half_a_character_in_the_list_of_tasks_excludes_its_episodes(tmp_path: Path) -> None:
    episodes = [make_episode(index, LENGTH, views=("front",)) for index in range(3)]
    root = write_v21_dataset(tmp_path / "place/dataset", episodes)
    tasks = [{"task_index": 0, "task": "do thing 0"}, {"task_index": 1, "task": HALF}]
    (root / "meta/tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    check_excluded(root, {"episode_000001"}, 3)


FILES = (
    ("annotated_keyframes.json", '[{"annotation": "a", "start_frame_id": 0, "end_frame_id": Infinity}]'),
    ("annotated_keyframes.json", '[{"annotation": "a\\ud800b", "start_frame_id": 0, "end_frame_id": 3}]'),
    ("annotated_keyframes.json", DEEP),
    ("success.json", DEEP),
    ("task_instruction.json", DEEP),
    ("task_instruction.json", '["a\\ud800b"]'),
    ("task_instruction.json", '[" "]'),
)


def test_bad_files_of_recordings(tmp_path: Path) -> None:
    root, count = tmp_path / "place/recordings", len(FILES) + 1
    for index in range(count):
        (root / f"trial_{index}").mkdir(parents=True)
        write_video(root / f"trial_{index}" / "front.mp4", paint_frames(range(LENGTH)), 10)
    (root / "task_instruction.json").write_text('["lift it"]')
    for index, (name, text) in enumerate(FILES, 1):
        (root / f"trial_{index}" / name).write_text(text)
    check_excluded(root, {f"trial_{index}" for index in range(1, count)}, count)


ENTRIES: tuple[dict[str, Any], ...] = (
    {"instruction": HALF},
    {"instruction": "\n "},
    {"subtasks": [{"name": HALF, "start": 0, "end": 3}]},
    {"subtasks": [{"name": "a", "start": 0, "end": 3}, {"name": "b", "start": 2, "end": 4}]},
    {"subtasks": [{"name": "a", "start": 0, "end": math.inf}]},
    {"text": {"task": HALF}},
    {"text": {HALF: "lift"}},
    {"views": {"front": HALF}},
    *({"views": {name: "front.mp4"}} for name in NAMES.values()),
)


def test_bad_entries_of_a_table(tmp_path: Path) -> None:
    root = tmp_path / "place/table"
    root.mkdir(parents=True)
    write_video(root / "front.mp4", paint_frames(range(LENGTH)), 10)
    entries = [
        {"name": f"trial_{index}", "instruction": "lift it", "views": {"front": "front.mp4"}, **change}
        for index, change in enumerate(({}, *ENTRIES))
    ]
    (root / "episodes.json").write_text(json.dumps(entries))
    check_excluded(root, {entry["name"] for entry in entries[1:]}, len(entries))


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_the_writer_takes_no_such_view_of_an_episode_in_memory(tmp_path: Path, name: str) -> None:
    episode = Episode(name="a", views={name: paint_frames(range(LENGTH))}, instruction="lift it", fps=10.0)
    writer = DatasetWriter(tmp_path / "target")
    with pytest.raises(DataError, match="view of a"):
        writer.add(episode)
    writer.abandon()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", ["observation.images.a\0b", "observation.images." + "x" * 300, "a/../../../b", HALF])
@pytest.mark.parametrize("dtype", ["video", "image"])
def test_no_feature_names_a_file_out_of_the_folder(tmp_path: Path, key: str, dtype: str) -> None:
    root = write_lerobot(tmp_path / "dataset", 1)
    info = json.loads((root / "meta/info.json").read_text())
    info["features"][key] = {**info["features"]["observation.images.front"], "dtype": dtype}
    (root / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match="feature of"):
        open_dataset(root)


@pytest.mark.parametrize("key", ["observation.images.**", "**", "[", "observation.images.*"])
def test_a_feature_is_no_pattern(tmp_path: Path, key: str) -> None:
    root = write_lerobot(tmp_path / "dataset", 1)
    info = json.loads((root / "meta/info.json").read_text())
    info["features"][key] = info["features"]["observation.images.front"]
    (root / "meta/info.json").write_text(json.dumps(info))
    source = open_dataset(root)
    assert source.views == ("front",) and f"lists {key}, which has no videos" in str(source.issues[0])


@pytest.mark.parametrize("name", ["meta/info.json", "episodes.json"])
def test_a_description_that_is_nested_too_deeply_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / name).write_text(DEEP)
    with pytest.raises(DataError, match="nested too deeply"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("rows", [[[]] * 12, [[0.0] * 4, [0.0] * 6] + [[0.0] * 5] * 10])
def test_states_without_values_or_of_different_length_exclude_their_episodes(tmp_path: Path, rows: list[Any]) -> None:
    root = write_lerobot(tmp_path / "dataset", 2)
    table = pq.read_table(root / DATA).drop_columns(["observation.state"])
    column = pa.array(rows, pa.list_(pa.float32()))
    pq.write_table(table.append_column("observation.state", column), root / DATA)
    assert "observation.state has rows" in str(validate_episode(open_dataset(root), 0))
