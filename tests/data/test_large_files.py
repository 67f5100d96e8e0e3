"""Files that state gigabytes and store a few bytes, and videos that decode to more than the memory, are refused."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_v21 import write_v21_dataset
from painted_frames import make_episode, paint_frames
from PIL import Image
from test_hdf5 import LENGTH, write_robomimic

from embodied_rm import free_memory
from embodied_rm.data import subprocess_worker
from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.degenerate_views import thin_pixels
from embodied_rm.data.lerobot import parquet
from embodied_rm.data.lerobot.image_features import ImageReader
from embodied_rm.data.lerobot.parquet import read_cells, read_parquet, read_records, rewrite_parquet
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.recordings import table
from embodied_rm.data.video.decoder import VideoDecoder
from embodied_rm.data.video.files import VideoWriter, write_video
from embodied_rm.errors import MAX_MESSAGE_CHARS, DataError
from embodied_rm.labels.comparisons import read_comparisons
from embodied_rm.run_folder import NullReporter, RunFolder

SPARSE_BYTES = 1 << 40


def write_recording(root: Path) -> Path:
    root.mkdir()
    write_video(root / "front.mp4", paint_frames(range(6)), 10)
    (root / "task_instruction.json").write_text('["lift it"]')
    return root


def write_v30(root: Path) -> Path:
    with DatasetWriter(root) as writer:
        writer.add(make_episode(0, 6, views=("front",)))
    return root


def write_v21(root: Path) -> Path:
    return write_v21_dataset(root, [make_episode(0, 6, views=("front",))])


def write_table(root: Path) -> Path:
    root.mkdir()
    (root / "episodes.csv").write_text("name,instruction,front\na,lift,front.mp4\n")
    return root


@pytest.mark.parametrize(
    ("write", "file"),
    [
        (write_recording, "task_instruction.json"),
        (write_recording, "success.json"),
        (write_recording, "annotated_keyframes.json"),
        (write_table, "episodes.json"),
        (write_table, "episodes.csv"),
        (write_table, "subtasks.csv"),
        (write_v30, "meta/info.json"),
        (write_v21, "meta/episodes.jsonl"),
    ],
)
def test_a_sparse_text_is_refused_by_its_size(tmp_path: Path, write: Callable[[Path], Path], file: str) -> None:
    root = write(tmp_path / "dataset")
    (root / file).touch()
    os.truncate(root / file, SPARSE_BYTES)
    with pytest.raises(DataError, match=r"the file has 1048576 MiB, (64|1024) are possible for text") as failure:
        open_dataset(root)
    assert str(root / file) in str(failure.value)


def test_sparse_lists_of_a_run_are_refused(tmp_path: Path) -> None:
    for name in ("comparisons.jsonl", "config.json"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, SPARSE_BYTES)
    with pytest.raises(DataError, match="MiB"):
        read_comparisons(tmp_path)
    with pytest.raises(ValueError, match="is damaged"):
        RunFolder(tmp_path).read_json("config.json")


def test_a_long_header_and_many_short_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_CELLS", 10_000)
    (tmp_path / "episodes.csv").write_text(f"instruction,{','.join(map(str, range(999)))}\n" + "lift\n" * 11)
    with pytest.raises(DataError, match=r"episodes\.csv: has more than 10000 cells"):
        open_dataset(tmp_path)


def repeat(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [text])


def test_a_text_that_is_stored_once_for_many_rows_is_refused(tmp_path: Path) -> None:
    count, text = 3000, repeat("x" * (1 << 20), 3000)
    texts = pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), text)
    rows = pa.StructArray.from_arrays([text, pa.array(np.zeros(count))], ["content", "timestamp"])
    columns = {"text": text, "list": texts, "rows": rows, "index": np.arange(count)}
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 1 << 17
    for name in ("text", "list", "rows"):
        with pytest.raises(DataError, match=r"texts\.parquet: its rows need more than 1024 MiB"):
            read_parquet(path, [name])
        with pytest.raises(DataError, match=r"texts\.parquet: its rows need more than 128 MiB"):
            read_records(path, [name])
        with pytest.raises(DataError, match=r"texts\.parquet: its rows need more than 128 MiB"):
            read_cells(path, name, range(count))
        assert len(read_cells(path, name, [0, count - 1])) == 2
    assert len(read_records(path, ["index"])) == count


def test_nested_texts_of_several_row_groups_are_read(tmp_path: Path) -> None:
    """LeRobot writes a row group per episode."""
    tasks = [[f"task {row % 3}"] for row in range(7)]
    words = [{"content": f"word {row}", "timestamp": float(row)} for row in range(7)]
    path = tmp_path / "groups.parquet"
    pq.write_table(pa.table({"tasks": tasks, "words": words}), path, row_group_size=2)
    records = [{"tasks": task, "words": word} for task, word in zip(tasks, words, strict=True)]
    assert [record for record, _ in read_records(path)] == records
    for name, values in (("tasks", tasks), ("words", words)):
        assert read_cells(path, name, [6, 1]) == {1: values[1], 6: values[6]}
    (tmp_path / "copy.parquet").write_bytes(rewrite_parquet(path, lambda part: part))
    assert [record for record, _ in read_records(tmp_path / "copy.parquet")] == records


READ_IN_LITTLE_MEMORY = """
import sys
from pathlib import Path
import pyarrow as pa
from embodied_rm.data.lerobot.parquet import read_records
from embodied_rm.errors import DataError
try:
    read_records(Path(sys.argv[1]), ["text"])
except DataError as error:
    print(error)
print(pa.default_memory_pool().max_memory() >> 20)
"""


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY"])
def test_texts_that_are_too_large_are_not_decoded_in_this_process(tmp_path: Path, encoding: str) -> None:
    """A page of one text, and one that stores the end of each text where it differs from the former: 150 MiB."""
    path = tmp_path / "texts.parquet"
    texts = ["x" * (150 << 20)] if encoding == "PLAIN" else ["x" * (1 << 20) + chr(97 + i % 26) for i in range(150)]
    options = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    pq.write_table(pa.table({"text": texts}), path, compression="zstd", column_encoding=encoding, **options)
    assert path.stat().st_size < 1 << 15
    command = [sys.executable, "-c", READ_IN_LITTLE_MEMORY, path]
    message, peak_mb = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert message.startswith(f"{path}: ") and int(peak_mb) == 0


def test_an_invalid_footer_does_not_end_the_process(tmp_path: Path) -> None:
    """The optional text column has two histograms of its levels; the schema then says that it is required."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "index": [0, 1]}), path, store_schema=False)
    content = path.read_bytes()
    optional = b"\x25\x02\x18\x04name"  # repetition type 1, and the name
    assert content.count(optional) == 1
    path.write_bytes(content.replace(optional, b"\x25\x00\x18\x04name"))
    for read in (read_parquet, read_records, lambda path: rewrite_parquet(path, lambda rows: rows)):
        with pytest.raises((DataError, OSError), match="histogram size mismatch"):
            read(path)
    assert len(read_parquet(path, ["index"])) == 2


def test_a_name_of_a_column_that_is_not_utf8_is_an_error_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"name": ["a", "b"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"\x04name", b"\x04\xffame"))
    with pytest.raises(DataError, match=r"rows\.parquet: cut short or not parquet .*invalid start byte"):
        read_parquet(path)


def test_records_need_less_memory_than_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_RECORD_BYTES", 1 << 20)
    pq.write_table(pa.table({"task_index": np.zeros(1 << 18, np.int64)}), tmp_path / "tasks.parquet")
    with pytest.raises(DataError, match="need more than 1 MiB"):
        read_records(tmp_path / "tasks.parquet")
    assert read_parquet(tmp_path / "tasks.parquet").num_rows == 1 << 18


def test_an_image_that_is_stored_once_for_many_rows_is_decoded_once_per_row(tmp_path: Path) -> None:
    """Sixteen copies of the rows, as a batch has, would need more memory than the process may have."""
    encoded = io.BytesIO()
    Image.fromarray(paint_frames([0])[0]).save(encoded, "PNG")
    image = pa.DictionaryArray.from_arrays(pa.array(np.zeros(64, np.int32)), [encoded.getvalue() + bytes(100 << 20)])
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"image": image}), path, compression="zstd", store_schema=False)
    with ImageReader() as reader:
        reader.image_size(tmp_path, path, "image", [0])
        assert reader._process is not None
        limit, _ = resource.prlimit(reader._process.pid, resource.RLIMIT_AS)
        assert 0 < limit < 4 << 30, "a page of gigabytes is an error"
        resource.prlimit(reader._process.pid, resource.RLIMIT_AS, (2 << 30, 2 << 30))
        assert reader.read(tmp_path, path, "image", np.array([1, 63]), None).shape == (2, 48, 64, 3)
        reader._process.kill()  # the next test needs one without this limit


def test_pixels_of_large_images_are_thinned_out() -> None:
    assert thin_pixels(np.zeros((2, 8640, 2047, 3), np.uint8)).shape == (2, 1080, 2047, 3)


def test_a_video_of_more_than_8k_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "front.mp4"
    write_video(path, np.zeros((1, 4352, 8192, 3), np.uint8), 10)
    with VideoDecoder() as decoder, pytest.raises(DataError, match=r"front\.mp4: its images claim to be 8192x4352"):
        decoder.probe(path)


def test_a_video_that_does_not_fit_into_memory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_dataset(write_recording(tmp_path / "recording"))
    monkeypatch.setattr(subprocess_worker, "free_memory_bytes", lambda: 60_000)
    with pytest.raises(DataError, match=r"front\.mp4: 6x48x64x3 numbers at once, .* do not fit into the free memory"):
        convert_dataset(source, tmp_path / "converted", NullReporter())
    assert source.read_frames(0, 0, 2, views=["front"], size=None).frames.shape == (2, 1, 48, 64, 3), "in parts it fits"


def test_free_memory_is_at_most_that_of_the_machine() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
    assert 0 < free_memory.free_memory_bytes() <= total


@pytest.mark.parametrize(
    "text", ['{"success": "' + "k" * (1 << 20) + '"}', '{"success": {"' + "k" * (1 << 20) + '": 1}}']
)
def test_a_message_does_not_show_all_of_a_long_value(tmp_path: Path, text: str) -> None:
    root = write_recording(tmp_path / "recording")
    (root / "success.json").write_text(text)
    with pytest.raises(DataError, match=r"success\.json: success is .* true or false was expected") as failure:
        open_dataset(root)
    assert len(str(failure.value)) < MAX_MESSAGE_CHARS + 10


@pytest.mark.parametrize("membership", ["0::/\n", "0::/slurm/job_7\n", "1:name=systemd:/x\n0::/slurm/job_7/step\n", ""])
@pytest.mark.parametrize(("limit", "free"), [("3000000\n", 1_500_000), ("max\n", None)])
def test_a_container_or_a_job_has_less_memory_than_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str, limit: str, free: int | None
) -> None:
    (tmp_path / "membership").write_text(membership)
    group = tmp_path / "slurm" / "job_7" if "slurm" in membership else tmp_path
    group.mkdir(parents=True, exist_ok=True)
    contents = {"max": limit, "current": "2000000\n", "stat": "anon 5\ninactive_file 500000\n"}
    for name, content in contents.items():
        (group / name).write_text(content)
    files = free_memory.Cgroup("", str(tmp_path), *contents, "inactive_file")
    monkeypatch.setattr(free_memory, "CGROUPS", (files,))
    monkeypatch.setattr(free_memory, "MEMBERSHIP_FILE", str(tmp_path / "membership"))
    if free is None:
        assert free_memory.free_memory_bytes() > 1 << 24
    else:
        assert free_memory.free_memory_bytes() == free


def test_a_video_beyond_the_limit_of_the_process_is_left_out(tmp_path: Path) -> None:
    """As below `ulimit -v`: the array does not fit, though the machine has the memory."""
    root = tmp_path / "recording"
    root.mkdir()
    with VideoWriter(root / "front.mp4", 10, (512, 512)) as writer:
        for _ in range(4):
            writer.add(np.zeros((100, 512, 512, 3), np.uint8))
    (root / "task_instruction.json").write_text('["lift it"]')
    script = (
        "import resource, sys; from pathlib import Path; from embodied_rm.data.open_dataset import open_dataset\n"
        "source = open_dataset(Path(sys.argv[1]))\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)\n"
        "source.episode(0)"
    )
    process = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=False)
    assert "DataError" in process.stderr
    assert "front.mp4: 400x512x512x3 numbers at once, 300 MiB, do not fit" in process.stderr


def test_a_chunk_of_gigabytes_is_refused_before_it_is_decompressed(tmp_path: Path) -> None:
    path, shape = write_robomimic(tmp_path / "lift.hdf5"), (LENGTH, 4096, 8192, 3)
    with h5py.File(path, "a") as file:
        del file["data/demo_2/obs/agentview_image"]
        images = file.create_dataset("data/demo_2/obs/agentview_image", shape, "u1", chunks=shape, compression="gzip")
        images.id.write_direct_chunk((0, 0, 0, 0), b"3 MB of compressed zeros")
    source = open_dataset(path)
    with pytest.raises(DataError, match=r"lift\.hdf5: data/demo_2/obs/agentview_image has chunks of 1152 MiB"):
        source.read_frames(1, 0, 1, views=["agentview"], size=None)
