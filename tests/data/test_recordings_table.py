"""Recordings listed in a table: JSON and CSV are equivalent; an invalid entry excludes only its episode."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest
from painted_frames import paint_frames, read_numbers

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.issues import MAX_ENTRY_ISSUES, affected_episodes
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.recordings.table import read_table
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.types import Subtask

LENGTH = 16
ENTRIES = [
    {
        "name": "first",
        "instruction": "put the cup away",
        "success": True,
        "views": {"top": "videos/0.mp4", "wrist": "videos/w0.mp4"},
        "subtasks": [{"name": "reach", "start": 0, "end": 8}, {"name": "put, gently", "start": 8, "end": 16}],
        "text": {"task": "cup"},
    },
    {
        "name": "second",
        "instruction": 'say "go"',
        "success": False,
        "views": {"top": "videos/1.mp4", "wrist": "w1.mp4"},
    },
    {"name": "third", "instruction": "stop", "views": {"top": "videos/2.mp4", "wrist": "videos/w2.mp4"}},
]
CSV = (
    "name,instruction,success,top,wrist,text/task\n"
    "first,put the cup away,true,videos/0.mp4,videos/w0.mp4,cup\n"
    'second,"say ""go""",FALSE,videos/1.mp4,w1.mp4,\n'
    "third,stop,,videos/2.mp4,videos/w2.mp4,\n"
)
SUBTASKS_CSV = """name,subtask,start,end
first,reach,0,8
first,"put, gently",8,16
"""


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    (tmp_path / "videos").mkdir()
    for i in range(3):
        write_video(tmp_path / "videos" / f"{i}.mp4", paint_frames(range(100 * i, 100 * i + LENGTH)), 10)
        wrist = tmp_path / ("w1.mp4" if i == 1 else f"videos/w{i}.mp4")
        write_video(wrist, paint_frames(range(500 + 100 * i, 500 + 100 * i + LENGTH)), 10)
    return tmp_path


def as_json(videos: Path, entries: list[object]) -> Path:
    (videos / "episodes.json").write_text(json.dumps(entries))
    return videos


def as_csv(videos: Path, table: str = CSV, subtasks: str | None = SUBTASKS_CSV) -> Path:
    (videos / "episodes.csv").write_text(table)
    if subtasks is not None:
        (videos / "subtasks.csv").write_text(subtasks)
    return videos


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_listed_recordings_are_read(videos, kind):
    source = open_dataset(as_json(videos, ENTRIES) if kind == "json" else as_csv(videos))
    assert source.views == ("top", "wrist") and source.issues == ()
    assert [meta.name for meta in source.meta] == ["first", "second", "third"]
    assert [meta.success for meta in source.meta] == [True, False, None]
    assert [meta.instruction for meta in source.meta] == ["put the cup away", 'say "go"', "stop"]
    assert source.meta[0].subtasks == (
        Subtask(name="reach", start=0, end=8),
        Subtask(name="put, gently", start=8, end=16),
    )
    assert (
        source.meta[0].metadata == {"task": "cup"} and source.meta[1].subtasks == () and source.meta[2].metadata == {}
    )
    for i, episode in enumerate(source):
        assert read_numbers(episode.views["top"]) == list(range(100 * i, 100 * i + LENGTH))
        assert read_numbers(episode.views["wrist"])[0] == 500 + 100 * i and episode.success == source.meta[i].success


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_flags_that_pandas_writes_beside_missing_ones_are_read(videos, kind):
    """They are floats, and the outcome must be a bool: labels test its identity."""
    values = (1.0, 0.0, None)
    if kind == "json":
        as_json(videos, [{**entry, "success": value} for entry, value in zip(ENTRIES, values, strict=True)])
    else:
        as_csv(videos, CSV.replace(",true,", ",1.0,").replace(",FALSE,", ",0.0,"))
    source = open_dataset(videos)
    assert [meta.success for meta in source.meta] == [True, False, None] and source.issues == ()
    assert all(meta.success is None or type(meta.success) is bool for meta in source.meta)


def test_feature_map_selects_views(videos):
    source = open_dataset(as_json(videos, ENTRIES), feature_map=FeatureMap(views={"wrist": "hand"}))
    assert source.views == ("hand",) and read_numbers(source.episode(2).views["hand"])[0] == 700


INVALID_ENTRIES = {
    "no object": ("third", "an object was expected"),
    "no instruction": ({**ENTRIES[2], "instruction": ""}, "entry 2 (third): instruction is ''"),
    "odd success": ({**ENTRIES[2], "success": "maybe"}, "success is 'maybe'; true, false or nothing"),
    "a number for success": ({**ENTRIES[2], "success": 1}, "success is 1"),
    "another number for success": ({**ENTRIES[2], "success": 0.7}, "success is 0.7; true, false or nothing"),
    "no views": ({**ENTRIES[2], "views": {}}, "it names no views"),
    "out of the folder": ({**ENTRIES[2], "views": {"top": "../secret.mp4"}}, "'../secret.mp4' leads out of the folder"),
    "absolute": ({**ENTRIES[2], "views": {"top": "/etc/passwd"}}, "leads out of the folder"),
    "no file name": ({**ENTRIES[2], "views": {"top": 7}}, "a file is 7"),
    "no such video": (
        {**ENTRIES[2], "views": {"top": "videos/9.mp4", "wrist": "w1.mp4"}},
        "9.mp4: the video file does",
    ),
    "step without end": ({**ENTRIES[2], "subtasks": [{"name": "a", "start": 0}]}, "a subtask lacks or misstates 'end'"),
    "step past the end": ({**ENTRIES[2], "subtasks": [{"name": "a", "start": 0, "end": 17}]}, "ends at frame 17"),
    "steps overlap": (
        {**ENTRIES[2], "subtasks": [{"name": "a", "start": 0, "end": 9}, {"name": "b", "start": 8, "end": 9}]},
        "subtask 'b' starts at 8, before 'a' ends",
    ),
    "text is no object": ({**ENTRIES[2], "text": "note"}, "text must be an object"),
    "steps are a number": ({**ENTRIES[2], "subtasks": 3}, "subtasks a list"),
    "a step beyond numbers": (
        {**ENTRIES[2], "subtasks": [{"name": "a", "start": 0, "end": 1e999}]},
        "a subtask lacks or",
    ),
    "a file name of nothing": ({**ENTRIES[2], "views": {"top": "a\0b"}}, "a file is 'a"),
    "a file name without end": ({**ENTRIES[2], "views": {"top": "a" * 5000}}, "a file is 'aaa"),
    "a step in seconds": (
        {**ENTRIES[2], "subtasks": [{"name": "a", "start": 0.4, "end": 2.9}]},
        "a subtask lacks or misstates a frame number (a frame is 0.4)",
    ),
    "backward step": ({**ENTRIES[2], "subtasks": [{"name": "a", "start": 9, "end": 3}]}, "0 <= start < end"),
}


@pytest.mark.parametrize("case", INVALID_ENTRIES)
def test_invalid_entry_excludes_its_episode(videos, case):
    entry, message = INVALID_ENTRIES[case]
    source = open_dataset(as_json(videos, [*ENTRIES[:2], entry]))
    (issue,) = source.issues
    assert message in str(issue) and affected_episodes(source.issues) == (
        ("episode_000002",) if case == "no object" else ("third",)
    )
    assert [meta.name for meta in source.meta] == ["first", "second"]


def test_frames_may_be_floats(videos):
    """As JavaScript and pandas write them."""
    steps = [{"name": "a", "start": 0.0, "end": 9.0}]
    source = open_dataset(as_json(videos, [{**ENTRIES[2], "subtasks": steps}]))
    assert (
        source.meta[0].subtasks == (Subtask(name="a", start=0, end=9),) and type(source.meta[0].subtasks[0].end) is int
    )


def test_a_step_in_seconds_of_a_csv_table_is_refused(videos):
    source = open_dataset(as_csv(videos, subtasks=SUBTASKS_CSV.replace("0,8", "0.4,8")))
    (issue,) = source.issues
    assert issue.episodes == ("first",) and "a subtask lacks or misstates a frame number" in issue.message


def test_name_with_path_is_rejected(videos):
    source = open_dataset(as_json(videos, [*ENTRIES[:2], {**ENTRIES[2], "name": "../../third"}]))
    assert [meta.name for meta in source.meta] == ["first", "second"]
    assert "is not a valid episode name: files are named after it" in str(source.issues[0])


def test_link_out_of_folder_is_not_followed(videos, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "video.mp4"
    shutil.move(videos / "videos" / "2.mp4", outside)
    (videos / "videos" / "2.mp4").symlink_to(outside)
    (issue,) = open_dataset(as_json(videos, ENTRIES)).issues
    assert "'videos/2.mp4' leads out of the folder" in str(issue)


def test_duplicate_names_are_excluded(videos):
    source = open_dataset(as_json(videos, [*ENTRIES, {**ENTRIES[2], "name": "first"}]))
    assert [meta.name for meta in source.meta] == ["second", "third"]
    assert "2 recordings have the name first" in str(source.issues[0])


@pytest.mark.parametrize(
    ("table", "subtasks", "message"),
    [
        ("name,success,top\na,true,0.mp4\n", None, "episodes.csv: column instruction is missing"),
        (CSV + "a,b,true,videos/0.mp4,videos/0.mp4,x,y\n", None, "line 5 has more cells"),
        (CSV, "name,subtask,start\nfirst,reach,0\n", "subtasks.csv: column end is missing"),
        (
            CSV,
            SUBTASKS_CSV + "fourth,reach,0,8\n",
            "subtasks.csv: has subtasks of fourth, which episodes.csv does not list",
        ),
        ("", None, "is empty"),
    ],
)
def test_invalid_table_is_rejected(videos, table, subtasks, message):
    with pytest.raises(DataError, match=message):
        open_dataset(as_csv(videos, table, subtasks))


def test_instruction_for_a_table_is_rejected(videos):
    with pytest.raises(DataError, match="the dataset has its own instructions; got 'go' as well"):
        open_dataset(as_json(videos, ENTRIES), "go")


def test_entries_that_are_none_take_little_memory_each(tmp_path):
    """Two bytes per entry, and an issue with a text takes a thousand."""
    count = 100_000
    (tmp_path / "episodes.csv").write_text("instruction\n" + "a\n" * count)
    tracemalloc.start()
    recordings, issues = read_table(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert recordings == [] and len(affected_episodes(issues)) == count
    assert str(issues[-1]).endswith(f"{count - MAX_ENTRY_ISSUES} further entries cannot be read")
    assert peak < 200 * count
