"""Small files that state much: they are refused by what they state, or read in parts."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embodied_rm.data.block_reader import FRAMES_PER_BLOCK, MAX_BLOCK_BYTES, iter_episode_blocks
from embodied_rm.data.lerobot import parquet
from embodied_rm.data.lerobot.parquet import read_parquet, read_records
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.data.video.decoder import VideoDecoder
from embodied_rm.errors import DataError
from embodied_rm.types import Views


def write_rows(path: Path, table: pa.Table, count: int) -> None:
    """Write a table several times, as row groups of one file."""
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(count):
            writer.write_table(table)


def test_a_table_of_many_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_TABLE_BYTES", 1 << 27)
    rows = np.zeros(1_000_000, np.int64)
    write_rows(tmp_path / "rows.parquet", pa.table({"index": rows, "other": rows}), 10)
    assert (tmp_path / "rows.parquet").stat().st_size < 1 << 20
    allocated = pa.total_allocated_bytes()
    with pytest.raises(DataError, match=r"rows\.parquet: its rows need more than 128 MiB"):
        read_parquet(tmp_path / "rows.parquet", ["index", "other"])
    assert pa.total_allocated_bytes() - allocated < 1 << 20


def test_large_texts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_TABLE_BYTES", 1 << 25)
    texts = pa.table({"text/note": ["x" * (1 << 20)], "name": ["a"]})
    with pq.ParquetWriter(tmp_path / "texts.parquet", texts.schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(33):
            writer.write_table(texts)
    assert (tmp_path / "texts.parquet").stat().st_size < 1 << 20
    with pytest.raises(DataError, match="its rows need more than 32 MiB"):
        read_parquet(tmp_path / "texts.parquet")
    assert read_parquet(tmp_path / "texts.parquet", ["name"]).num_rows == 33, "columns that are not read do not count"


@pytest.mark.parametrize(
    "column",
    [pa.nulls(2_000_000), pa.array([None], pa.list_(pa.null())).take([0] * 2_000_000), np.zeros(2_000_000, bool)],
    ids=["null", "lists of null", "bool"],
)
def test_rows_without_content_count(column: pa.Array, tmp_path: Path) -> None:
    """Each becomes a dictionary: 100 million rows in a file of 200 KB took 7 GB."""
    write_rows(tmp_path / "tasks.parquet", pa.table({"task": column}), 5)
    assert (tmp_path / "tasks.parquet").stat().st_size < 1 << 17
    with pytest.raises(DataError, match=r"tasks\.parquet: its rows need more than 128 MiB"):
        read_records(tmp_path / "tasks.parquet")


def test_lists_of_nothing_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_TABLE_BYTES", 1 << 25)
    nulls = pa.array([[None] * 1000], pa.list_(pa.null())).take([0] * 1000)
    write_rows(tmp_path / "rows.parquet", pa.table({"a": nulls}), 5)
    with pytest.raises(DataError, match="its rows need more than 32 MiB"):
        read_parquet(tmp_path / "rows.parquet")


class LargeImages:
    """A source of one episode, which counts the frames of each request and reads none."""

    meta = (EpisodeMeta(name="a", length=70, instruction="lift it"),)

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.requests: list[int] = []

    def image_size(self, index: int) -> tuple[int, int]:
        return self.size

    def read_frames(self, index: int, start: int, stop: int, **options: Any) -> Views:
        self.requests.append(stop - start)
        return Views(names=("front",), frames=np.zeros((stop - start, 1, 1, 1, 3), np.uint8))


@pytest.mark.parametrize("size", [(64, 64), (1080, 1920), (4096, 4096), (8192, 8192)])
def test_blocks_of_large_images_have_few_frames(size: tuple[int, int]) -> None:
    source = LargeImages(size)
    list(iter_episode_blocks(source, 0, ["front"], None))  # type: ignore[arg-type]
    assert sum(source.requests) == 70 and max(source.requests) <= FRAMES_PER_BLOCK
    frame_bytes = size[0] * size[1] * 3
    assert max(source.requests) * frame_bytes <= max(MAX_BLOCK_BYTES, frame_bytes)
    assert len(source.requests) == 3 or max(source.requests) * frame_bytes > MAX_BLOCK_BYTES // 2


def write_gif(path: Path, num_frames: int, width: int, height: int) -> None:
    """Write a GIF of 10 frames per second, each of which changes one pixel."""
    control = b"\x21\xf9\x04\x04" + struct.pack("<H", 10) + b"\0\0"
    pixel = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    header = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    path.write_bytes(header + (control + pixel) * num_frames + b"\x3b")


def test_decoded_frames_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle of references held each frame until the garbage collector ran: 2.5 GB of a video in 4K."""
    monkeypatch.setattr("embodied_rm.data.subprocess_worker._IDLE", {})  # a new process
    write_gif(tmp_path / "front.gif", num_frames=200, width=1024, height=1024)  # of 4 MiB each
    with VideoDecoder() as decoder:
        info = decoder.probe(tmp_path / "front.gif")
        decoder.read(tmp_path / "front.gif", info.timestamps, info.fps, (48, 64))
        assert decoder._process is not None
        status = Path(f"/proc/{decoder._process.pid}/status").read_text(encoding="ascii")
    peak = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert peak is not None and int(peak[1]) >> 10 < 300
