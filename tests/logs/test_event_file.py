"""Event files as TensorBoard reads them, with its own reader."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest
from curves import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from embodied_rm.logs import event_file
from embodied_rm.logs.event_file import EVENT_FILE_PREFIX, EventFileWriter, masked_crc


def write(folder: Path, steps: range, value: float = 0.0) -> None:
    """One start of a run, which writes a row for each step."""
    file = EventFileWriter(folder)
    for step in steps:
        file.write(step, {"loss/total": value + step, "seconds": float(step)})
    file.close(failed=False)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{EVENT_FILE_PREFIX}*"))


def test_the_sum_is_crc_32c_masked():
    assert masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


@settings(max_examples=30, deadline=None)
@given(
    rows=st.dictionaries(
        st.integers(0, 2**40),
        st.dictionaries(st.text(min_size=1, max_size=200).filter(lambda t: t.isprintable()), st.floats(), min_size=1),
        min_size=1,
        max_size=5,
    )
)
def test_tensorboard_reads_what_was_written(tmp_path_factory, rows):
    folder, file = tmp_path_factory.mktemp("events"), None
    file = EventFileWriter(folder)
    for step in sorted(rows):
        file.write(step, rows[step])
    file.close(failed=False)
    expected: dict[str, list[tuple[int, float]]] = {}
    for step in sorted(rows):
        for tag, value in rows[step].items():
            with np.errstate(over="ignore"):
                expected.setdefault(tag, []).append((step, float(np.float32(value))))
    read = drawn(folder)
    assert read.keys() == expected.keys()
    for tag, points in expected.items():
        np.testing.assert_equal(read[tag], points)


def test_an_event_says_what_tensorboards_own_class_says():
    sent = event_file.encode_event(12.5, 7, event_file.encode_summary({"loss/total": 0.25, "learning_rate": 1e300}))
    read = Event.FromString(sent)
    assert (read.wall_time, read.step) == (12.5, 7)
    assert [(value.tag, value.simple_value) for value in read.summary.value] == [
        ("loss/total", 0.25),
        ("learning_rate", math.inf),
    ]
    assert (
        Event.FromString(event_file.encode_event(0.0, 3, event_file.encode_session_start())).session_log.status
        == SessionLog.START
    )


def test_a_run_that_goes_on_takes_back_what_was_written_after_its_checkpoint(tmp_path):
    write(tmp_path, range(1, 11))
    write(tmp_path, range(7, 10), value=100.0)
    write(tmp_path, range(10, 14), value=200.0)
    points = [(s, float(s)) for s in range(1, 7)] + [(s, 100.0 + s) for s in range(7, 10)]
    assert drawn(tmp_path)["loss/total"] == points + [(s, 200.0 + s) for s in range(10, 14)]


def test_a_run_that_starts_again_from_nothing_takes_everything_back(tmp_path):
    write(tmp_path, range(1, 11))
    write(tmp_path, range(1, 3), value=100.0)
    assert drawn(tmp_path)["loss/total"] == [(1, 101.0), (2, 102.0)]


@pytest.mark.parametrize("lost", [1, 4, 11, 60])
def test_a_record_that_was_torn_by_a_kill_costs_nothing_else(tmp_path, lost):
    write(tmp_path, range(1, 6))
    torn = files(tmp_path)[0]
    torn.write_bytes(torn.read_bytes()[:-lost])
    write(tmp_path, range(5, 8), value=100.0)
    assert drawn(tmp_path)["loss/total"] == [(s, float(s)) for s in range(1, 5)] + [(s, 100.0 + s) for s in (5, 6, 7)]


def test_files_are_read_in_the_order_of_the_starts_however_the_clock_runs(tmp_path, monkeypatch):
    for second, value in ((2e9, 0.0), (2e9, 100.0), (1e9, 200.0), (3e9, 300.0)):
        monkeypatch.setattr(event_file.time, "time", lambda second=second: second)
        write(tmp_path, range(1, 3), value=value)
    assert len(files(tmp_path)) == 4
    assert drawn(tmp_path)["loss/total"] == [(1, 301.0), (2, 302.0)]


def test_rows_are_on_the_disk_as_soon_as_they_are_written(tmp_path):
    file = EventFileWriter(tmp_path)
    assert not files(tmp_path), "a run that never logs leaves no file"
    file.write(1, {"loss/total": 0.5})
    assert drawn(tmp_path)["loss/total"] == [(1, 0.5)]
    content, lengths = files(tmp_path)[0].read_bytes(), []
    while content:
        length = struct.unpack_from("<Q", content)[0]
        lengths.append(length)
        content = content[16 + length :]
    assert len(lengths) == 3, "version, start, row"
