"""Event files, read with TensorBoard's reader."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest
from curves import read_scalars
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from embodied_rm.logs import event_file
from embodied_rm.logs.event_file import EVENT_FILE_PREFIX, EventFileWriter, masked_crc


def write_session(folder: Path, steps: range, value: float = 0.0) -> None:
    """Write a session of a run with a row per step."""
    writer = EventFileWriter(folder)
    for step in steps:
        writer.write(step, {"loss/total": value + step, "seconds": float(step)})
    writer.close(failed=False)


def event_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{EVENT_FILE_PREFIX}*"))


def test_masked_crc():
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
def test_tensorboard_reads_all_rows(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("events")
    writer = EventFileWriter(folder)
    for step in sorted(rows):
        writer.write(step, rows[step])
    writer.close(failed=False)
    expected: dict[str, list[tuple[int, float]]] = {}
    for step in sorted(rows):
        for tag, value in rows[step].items():
            with np.errstate(over="ignore"):
                expected.setdefault(tag, []).append((step, float(np.float32(value))))
    scalars = read_scalars(folder)
    assert scalars.keys() == expected.keys()
    for tag, points in expected.items():
        np.testing.assert_equal(scalars[tag], points)


def test_events_parse_with_tensorboards_class():
    encoded = event_file.encode_event(12.5, 7, event_file.encode_summary({"loss/total": 0.25, "learning_rate": 1e300}))
    event = Event.FromString(encoded)
    assert (event.wall_time, event.step) == (12.5, 7)
    assert [(value.tag, value.simple_value) for value in event.summary.value] == [
        ("loss/total", 0.25),
        ("learning_rate", math.inf),
    ]
    start = event_file.encode_event(0.0, 3, event_file.encode_session_start())
    assert Event.FromString(start).session_log.status == SessionLog.START


def test_resumed_run_replaces_rows_after_its_checkpoint(tmp_path):
    write_session(tmp_path, range(1, 11))
    write_session(tmp_path, range(7, 10), value=100.0)
    write_session(tmp_path, range(10, 14), value=200.0)
    points = [(s, float(s)) for s in range(1, 7)] + [(s, 100.0 + s) for s in range(7, 10)]
    assert read_scalars(tmp_path)["loss/total"] == points + [(s, 200.0 + s) for s in range(10, 14)]


def test_restarted_run_replaces_all_rows(tmp_path):
    write_session(tmp_path, range(1, 11))
    write_session(tmp_path, range(1, 3), value=100.0)
    assert read_scalars(tmp_path)["loss/total"] == [(1, 101.0), (2, 102.0)]


@pytest.mark.parametrize("num_bytes", [1, 4, 11, 60])
def test_truncated_record_affects_no_other_row(tmp_path, num_bytes):
    write_session(tmp_path, range(1, 6))
    truncated = event_files(tmp_path)[0]
    truncated.write_bytes(truncated.read_bytes()[:-num_bytes])
    write_session(tmp_path, range(5, 8), value=100.0)
    assert read_scalars(tmp_path)["loss/total"] == [(s, float(s)) for s in range(1, 5)] + [
        (s, 100.0 + s) for s in (5, 6, 7)
    ]


def test_files_are_read_in_order_of_sessions_for_any_clock(tmp_path, monkeypatch):
    for second, value in ((2e9, 0.0), (2e9, 100.0), (1e9, 200.0), (3e9, 300.0)):
        monkeypatch.setattr(event_file.time, "time", lambda second=second: second)
        write_session(tmp_path, range(1, 3), value=value)
    assert len(event_files(tmp_path)) == 4
    assert read_scalars(tmp_path)["loss/total"] == [(1, 301.0), (2, 302.0)]


def test_rows_are_flushed(tmp_path):
    writer = EventFileWriter(tmp_path)
    assert not event_files(tmp_path), "no file before the first row"
    writer.write(1, {"loss/total": 0.5})
    assert read_scalars(tmp_path)["loss/total"] == [(1, 0.5)]
    content, lengths = event_files(tmp_path)[0].read_bytes(), []
    while content:
        length = struct.unpack_from("<Q", content)[0]
        lengths.append(length)
        content = content[16 + length :]
    assert len(lengths) == 3, "version, start, row"
