"""Stored annotations: they read back equal, everything else is unchanged, and a crash leaves old or new."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from lerobot_v21 import write_v21_dataset
from painted_frames import make_episode, paint_frames
from test_hdf5 import write_robomimic
from test_recordings_table import CSV, ENTRIES, SUBTASKS_CSV

from embodied_rm.data.annotation import Annotation
from embodied_rm.data.dataset_files import dump_json_like
from embodied_rm.data.lerobot.stats import aggregate_stats, column_stats
from embodied_rm.data.lerobot.write import DatasetWriter, subtask_column
from embodied_rm.data.open_dataset import open_annotations, open_dataset
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.types import Subtask

LENGTH = 16
NEW = Annotation(
    subtasks=(Subtask(name="reach, then grasp", start=1, end=4), Subtask(name="hebe ä", start=4, end=16)), success=False
)
REAL_SUBTASKS = """[
    {
        "anotation": "subtask1",
        "start_frame_id": 1,
        "end_frame_id": 5,
        "note": "kept"
    },
    {
        "anotation": "subtask2",
        "start_frame_id": 5,
        "end_frame_id": 16
    }
]"""


def write_videos(folder: Path, count: int = 3) -> None:
    (folder / "videos").mkdir(parents=True)
    for i in range(count):
        write_video(folder / "videos" / f"{i}.mp4", paint_frames(range(LENGTH)), 10)
        write_video(folder / "videos" / f"w{i}.mp4", paint_frames(range(LENGTH)), 10)
    (folder / "videos" / "w1.mp4").rename(folder / "w1.mp4")


def recordings(folder: Path) -> Path:
    for name in ("a", "b", "c"):
        (folder / name).mkdir(parents=True)
        write_video(folder / name / "top.mp4", paint_frames(range(LENGTH)), 10)
    (folder / "task_instruction.json").write_text('["tidy up"]')
    (folder / "b" / "annotated_keyframes.json").write_text(REAL_SUBTASKS)
    return folder


def json_table(folder: Path) -> Path:
    write_videos(folder)
    entries = [{**ENTRIES[0], "success": None}, ENTRIES[1], {**ENTRIES[2], "operator": "Zoë", "tries": 3}]
    (folder / "episodes.json").write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n")
    return folder


def csv_table(folder: Path) -> Path:
    write_videos(folder)
    (folder / "episodes.csv").write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode())
    (folder / "subtasks.csv").write_bytes(SUBTASKS_CSV.replace("first", "second").encode()[:-1])
    return folder


def lerobot(folder: Path) -> Path:
    with DatasetWriter(folder, data_file_mb=1e-6) as writer:
        for i in range(3):
            writer.add(make_episode(i, LENGTH))
    return folder


LAYOUTS = {"recordings": recordings, "json": json_table, "csv": csv_table, "lerobot": lerobot}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A read-only dataset of each layout."""
    return {name: make(tmp_path_factory.mktemp(name) / "data") for name, make in LAYOUTS.items()}


@pytest.fixture
def copy_dataset(datasets: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Copies the dataset of a layout."""
    return lambda layout: Path(shutil.copytree(datasets[layout], tmp_path / "data"))


def digests(folder: Path) -> dict[str, str]:
    """Digest of each file."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def annotations(folder: Path) -> list[Annotation]:
    return [Annotation(subtasks=meta.subtasks, success=meta.success) for meta in open_dataset(folder).meta]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_written_annotation_reads_back_and_others_are_unchanged(copy_dataset, layout: str) -> None:
    folder = copy_dataset(layout)
    before = annotations(folder)
    store = open_annotations(folder, open_dataset(folder))
    for index in range(3):
        for annotation in (NEW, replace(NEW, success=True), Annotation(), replace(NEW, success=None), before[index]):
            store.write(index, annotation)
            assert [store.read(i) for i in range(3)] == [*before[:index], annotation, *before[index + 1 :]]
    store.write(2, NEW)
    assert annotations(folder) == [*before[:2], NEW]
    assert open_dataset(folder).issues == () and not list(folder.rglob("*.partial"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unchanged_annotation_leaves_every_byte(copy_dataset, layout: str) -> None:
    folder = copy_dataset(layout)
    store, before = open_annotations(folder, open_dataset(folder)), digests(folder)
    for index, annotation in enumerate(annotations(folder)):
        store.write(index, annotation)
    assert digests(folder) == before


CHANGED_FILES = {
    "recordings": {"b/annotated_keyframes.json", "b/success.json"},
    "json": {"episodes.json"},
    "csv": {"episodes.csv", "subtasks.csv"},
    "lerobot": {"meta/episodes/chunk-000/file-000.parquet", "meta/stats.json", "data/chunk-000/file-001.parquet"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_expected_files_change(copy_dataset, layout: str) -> None:
    folder = copy_dataset(layout)
    before = digests(folder)
    open_annotations(folder, open_dataset(folder)).write(1, replace(NEW, success=True))
    after = digests(folder)
    assert {name for name in before | after if before.get(name) != after.get(name)} == CHANGED_FILES[layout]


def test_recordings_keep_spelling_style_and_extra_fields(copy_dataset) -> None:
    folder = copy_dataset("recordings")
    subtasks = (Subtask(name="subtask1", start=1, end=7), Subtask(name="subtask2", start=7, end=16))
    open_annotations(folder, open_dataset(folder)).write(1, Annotation(subtasks=subtasks, success=True))
    path = folder / "b" / "annotated_keyframes.json"
    assert path.read_text() == REAL_SUBTASKS.replace('frame_id": 5', 'frame_id": 7')
    assert json.loads((folder / "b" / "success.json").read_text()) == {"success": True}


def test_invalid_success_excludes_its_recording(copy_dataset) -> None:
    folder = copy_dataset("recordings")
    (folder / "c" / "success.json").write_text('{"success": "mostly"}')
    (issue,) = open_dataset(folder).issues
    assert issue.episodes == ("c",) and "success is 'mostly'; true or false was expected" in str(issue)


def test_csv_table_changes_only_lines_of_the_episode(copy_dataset) -> None:
    folder = copy_dataset("csv")
    lines = (folder / "episodes.csv").read_bytes().splitlines(keepends=True)
    subtasks = (folder / "subtasks.csv").read_bytes()
    store = open_annotations(folder, open_dataset(folder))
    store.write(2, NEW)
    third = b"third,stop,false,videos/2.mp4,videos/w2.mp4,\r\n"
    assert (folder / "episodes.csv").read_bytes().splitlines(keepends=True) == [*lines[:3], third]
    added = 'third,"reach, then grasp",1,4\nthird,hebe ä,4,16\n'.encode()
    assert (folder / "subtasks.csv").read_bytes() == subtasks + b"\n" + added
    (folder / "subtasks.csv").unlink()
    store.write(1, NEW)
    assert (folder / "subtasks.csv").read_text().startswith('name,subtask,start,end\nsecond,"reach, then grasp",1,4\n')


def test_csv_table_gets_a_missing_success_column(tmp_path: Path) -> None:
    write_videos(tmp_path)
    (tmp_path / "episodes.csv").write_text("instruction,top\nstop,videos/0.mp4\ngo,videos/1.mp4\n")
    open_annotations(tmp_path, open_dataset(tmp_path)).write(1, Annotation(success=True))
    assert (
        tmp_path / "episodes.csv"
    ).read_text() == "instruction,top,success\nstop,videos/0.mp4\ngo,videos/1.mp4,true\n"
    assert [meta.success for meta in open_dataset(tmp_path).meta] == [None, True]


def test_table_with_moved_entries_is_written_correctly(copy_dataset) -> None:
    folder = copy_dataset("json")
    store = open_annotations(folder, open_dataset(folder))
    entries = json.loads((folder / "episodes.json").read_text())
    (folder / "episodes.json").write_text(json.dumps(entries[::-1]))
    store.write(0, NEW)
    assert {m.name: m.success for m in open_dataset(folder).meta} == {"first": False, "second": False, "third": None}
    (folder / "episodes.json").write_text(json.dumps(entries[1:]))
    with pytest.raises(DataError, match="no longer lists a readable first"):
        store.write(0, NEW)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"a": "ä", "b": [1.5, None]}, 3]),
        json.dumps([{"a": "ä", "b": []}], ensure_ascii=False, indent=1) + "\n",
        json.dumps({"a": [1, 2]}, separators=(",", ":")),
        json.dumps([{"a": 1}], indent="\t").replace("\n", "\r\n"),
        "[]",
        "{}\n",
    ],
)
def test_json_style_is_preserved(text: str) -> None:
    assert dump_json_like(text, json.loads(text)) == text


def test_lerobot_columns_and_statistics_agree(copy_dataset, tmp_path: Path) -> None:
    folder = copy_dataset("lerobot")
    before = [pq.read_table(path) for path in sorted(folder.glob("data/*/*.parquet"))]
    open_annotations(folder, open_dataset(folder)).write(1, NEW)
    after = [pq.read_table(path) for path in sorted(folder.glob("data/*/*.parquet"))]
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        assert old.drop(["subtask_index"]).equals(new.drop(["subtask_index"])) and old.schema.equals(
            new.schema, check_metadata=True
        )
        expected = subtask_column(NEW.subtasks, LENGTH) if i == 1 else old["subtask_index"].to_numpy()
        assert np.array_equal(new["subtask_index"].to_numpy(), expected)
    # Equal to a dataset that was recorded with these subtasks.
    with DatasetWriter(tmp_path / "fresh", data_file_mb=1e-6) as writer:
        for i in range(3):
            episode = make_episode(i, LENGTH)
            writer.add(replace(episode, subtasks=NEW.subtasks, success=NEW.success) if i == 1 else episode)
    listing = "meta/episodes/chunk-000/file-000.parquet"
    assert pq.read_table(folder / listing).equals(pq.read_table(tmp_path / "fresh" / listing))
    for name in ("meta/stats.json", "meta/info.json", "meta/tasks.parquet"):
        assert (folder / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()


class SimulatedCrash(BaseException):
    """Simulates a power failure."""


WRITES = {"recordings": 2, "json": 1, "csv": 2, "lerobot": 3}
"""Number of files that a save replaces."""


@pytest.mark.parametrize(("layout", "fails_at"), [(name, at + 1) for name in WRITES for at in range(WRITES[name])])
@pytest.mark.parametrize("renamed", [False, True])
def test_crash_leaves_old_or_new_annotation(
    copy_dataset, layout: str, fails_at: int, renamed: bool, monkeypatch
) -> None:
    folder = copy_dataset(layout)
    source = open_dataset(folder)
    store = open_annotations(folder, source)
    old = [store.read(i) for i in range(3)]
    calls = 0
    original_replace = Path.replace

    def failing_replace(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            if renamed:
                original_replace(self, target)
            raise SimulatedCrash
        return original_replace(self, target)

    monkeypatch.setattr(Path, "replace", failing_replace)
    new = replace(NEW, success=True)
    with pytest.raises(SimulatedCrash):
        store.write(1, new)
    current = annotations(folder)
    assert [current[0], current[2]] == [old[0], old[2]]
    assert current[1].subtasks in (old[1].subtasks, new.subtasks) and current[1].success in (
        old[1].success,
        new.success,
    )
    if layout not in ("recordings", "csv"):  # these layouts store subtasks and success in two files
        assert current[1] in (old[1], new)
    store = open_annotations(folder, source)
    repaired = store.repair()
    assert store.repair() == () and [store.read(i) for i in range(3)] == current
    if layout == "lerobot":
        assert bool(repaired) == ((1, False) < (fails_at, renamed) < (3, True))
        stored = pq.read_table(folder / "data/chunk-000/file-001.parquet")["subtask_index"].to_numpy()
        assert np.array_equal(stored, subtask_column(current[1].subtasks, LENGTH))
        columns = [subtask_column(annotation.subtasks, LENGTH) for annotation in current]
        stats = {key: value.tolist() for key, value in aggregate_stats(map(column_stats, columns)).items()}
        assert json.loads((folder / "meta/stats.json").read_text())["subtask_index"] == stats
    store.write(1, new)
    assert store.read(1) == new


@pytest.mark.parametrize("layout", ["robomimic", "v2.1", "third-party"])
def test_readonly_layouts_are_rejected_with_the_convert_command(tmp_path: Path, layout: str) -> None:
    if layout == "robomimic":
        folder = write_robomimic(tmp_path / "in.hdf5")
    elif layout == "v2.1":
        folder = write_v21_dataset(tmp_path / "in", [make_episode(i, 12) for i in range(2)])
    else:
        folder = lerobot(tmp_path / "in")
        listing = folder / "meta/episodes/chunk-000/file-000.parquet"
        pq.write_table(
            pq.read_table(listing).drop(["success", "subtask_names", "subtask_start_frames", "subtask_end_frames"]),
            listing,
        )
    before = digests(tmp_path)
    with pytest.raises(DataError) as caught:
        open_annotations(folder, open_dataset(folder))
    message = str(caught.value)
    assert f"`embodied-rm convert data={folder}`" in message and "\n" not in message and digests(tmp_path) == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_planted_links_are_not_written_through(copy_dataset, layout: str, tmp_path: Path) -> None:
    """Targets of links at any likely temporary name are unchanged."""
    folder, target = copy_dataset(layout), tmp_path / "bashrc"
    target.write_text("mine\n")
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.with_name(path.name + ".partial").symlink_to(target)
    store = open_annotations(folder, open_dataset(folder))
    store.write(1, replace(NEW, success=True))
    assert store.read(1) == replace(NEW, success=True) and target.read_text() == "mine\n"


LINKED = {
    "recordings": ("b", "b/annotated_keyframes.json"),
    "json": ("episodes.json",),
    "csv": ("episodes.csv", "subtasks.csv"),
    "lerobot": ("meta", "meta/episodes", "meta/stats.json", "data"),
}


@pytest.mark.parametrize(("layout", "name"), [(layout, name) for layout, names in LINKED.items() for name in names])
def test_links_out_of_the_dataset_are_rejected(copy_dataset, layout: str, name: str, tmp_path: Path) -> None:
    """A file or folder of the dataset is a link into another dataset: neither dataset is changed."""
    folder = copy_dataset(layout)
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    link = folder / name
    shutil.rmtree(link) if link.is_dir() else link.unlink()
    link.symlink_to(other / name)
    before = digests(other)
    with pytest.raises(DataError, match="leads out of"):
        open_annotations(folder, open_dataset(folder)).write(1, replace(NEW, success=True))
    assert digests(other) == before


def test_link_within_the_dataset_is_kept(copy_dataset) -> None:
    folder = copy_dataset("json")
    (folder / "episodes.json").rename(folder / "table.json")
    (folder / "episodes.json").symlink_to("table.json")
    open_annotations(folder, open_dataset(folder)).write(1, NEW)
    assert (folder / "episodes.json").is_symlink() and annotations(folder)[1] == NEW
