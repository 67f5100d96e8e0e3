"""Frames read back close to the original and at their time; damaged files raise an error, never crash the process."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from painted_frames import H, W, paint_frames, psnr, read_numbers, replace_by_lfs_pointer, truncate
from read_video import read_frames

from embodied_rm.data.source import stride_indices
from embodied_rm.data.subprocess_worker import MAX_IDLE_PROCESSES
from embodied_rm.data.video.decoder import VideoDecoder
from embodied_rm.data.video.files import VideoWriter, write_video
from embodied_rm.errors import DataError

LENGTH, FPS = 130, 10.0
NO_VIDEO = "none of the videos that are read"


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("video") / "painted.mp4"
    write_video(path, paint_frames(range(LENGTH)), FPS)
    return path


@pytest.fixture(scope="module")
def decoder():
    with VideoDecoder() as decoder:
        yield decoder


def remux_faststart(source: Path, target: Path) -> Path:
    """Remux with the index in front, as for the web."""
    with av.open(str(source)) as old, av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(old.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                new.mux(packet)
    return target


def write_reordered(path: Path, times_ms: list[int]) -> Path:
    """An mp4 as written by other tools: reordered frames (B frames), few key frames, any times."""
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(20))
        stream.width, stream.height, stream.pix_fmt = W, H, "yuv420p"
        stream.options = {"crf": "14", "g": "250", "bf": "3", "b-pyramid": "normal"}
        stream.codec_context.time_base = Fraction(1, 1000)
        for number, time in enumerate(times_ms):
            frame = av.VideoFrame.from_ndarray(paint_frames([number])[0], format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def test_round_trip_on_smooth_images(tmp_path):
    t = np.arange(30)[:, None, None, None]
    yy, xx = np.mgrid[:64, :96][0][..., None], np.mgrid[:64, :96][1][..., None]
    frames = (110 + 60 * np.sin((xx + 2 * t) / 15 + np.array([0, 1, 2])) + 40 * np.cos(yy / 20)).clip(0, 255)
    frames = frames.astype(np.uint8)
    write_video(tmp_path / "a.mp4", frames, 20)
    decoded = read_frames(tmp_path / "a.mp4")
    assert decoded.shape == frames.shape and decoded.dtype == np.uint8
    assert psnr(frames, decoded) > 35
    # no color shift either: it would distinguish a camera from its recording
    assert np.abs((decoded.astype(float) - frames).mean((0, 1, 2))).max() < 0.5


def test_probe_counts_frames(video, decoder):
    info = decoder.probe(video)
    assert (len(info), info.fps, info.height, info.width) == (LENGTH, FPS, H, W)
    np.testing.assert_allclose(info.timestamps, np.arange(LENGTH) / FPS)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, LENGTH - 1), min_size=1, max_size=8), st.floats(-0.4, 0.4))
def test_time_selects_its_frame(video, decoder, numbers, offset):
    """Times in any order, repeated, and off by less than half a frame."""
    frames = decoder.read(video, (np.array(numbers) + offset) / FPS, FPS)
    assert read_numbers(frames) == numbers


def test_sequential_and_random_reads_give_the_same_pixels(video, decoder):
    frames = read_frames(video)
    assert read_numbers(frames) == list(range(LENGTH))
    for number in (0, 129, 64, 65, 66, 3):
        np.testing.assert_array_equal(decoder.read(video, [number / FPS], FPS)[0], frames[number])


@pytest.mark.parametrize("stride", [1, 3, 16, 129, 500])
def test_stride_keeps_the_first_and_the_last_frame(video, stride):
    frames = read_frames(video, stride=stride)
    assert read_numbers(frames) == list(stride_indices(LENGTH, stride))
    assert read_numbers(frames[[0, -1]]) == [0, LENGTH - 1]


def test_resizing_while_decoding_averages(video):
    full = read_frames(video, stride=40).astype(np.float64)
    small = read_frames(video, stride=40, size=(H // 2, W // 2))
    means = full.reshape(len(full), H // 2, 2, W // 2, 2, 3).mean((2, 4))
    assert small.shape == means.shape
    assert np.abs(small - means).mean() < 1.5


def test_times_without_a_frame_are_rejected(video, decoder):
    for time in (-0.06, LENGTH / FPS, 1e6):
        with pytest.raises(DataError, match=r"painted\.mp4: .* no frame"):
            decoder.read(video, [0.0, time], FPS)


def test_invalid_requests_are_rejected_before_decoding(video, decoder):
    for times, size, message in (
        ([], None, "one time or more"),
        ([0.0, float("nan")], None, "all finite"),
        ([0.0], (0, 64), r"size must be \(height, width\), both >= 1, got \(0, 64\)"),
    ):
        with pytest.raises(DataError, match=message):
            decoder.read(video, times, FPS, size)


def test_reordered_frames_and_uneven_times(tmp_path, decoder):
    times = list(np.cumsum(np.random.default_rng(0).choice([30, 50, 80], size=300)))
    path = write_reordered(tmp_path / "reordered.mp4", times)
    info = decoder.probe(path)
    np.testing.assert_allclose(np.diff(info.timestamps), np.diff(times) / 1000, atol=1e-3)
    for indices in (range(300), [299, 0, 150, 151, 40], range(5, 300, 60), range(299, -1, -7)):
        assert read_numbers(decoder.read(path, info.timestamps[list(indices)], info.fps)) == list(indices)


def test_fractional_frame_rate(tmp_path, decoder):
    write_video(tmp_path / "a.mp4", paint_frames(range(40)), 20 / 3)
    info = decoder.probe(tmp_path / "a.mp4")
    np.testing.assert_allclose(info.timestamps, np.arange(40) * 0.15, atol=1e-3)
    assert info.fps == pytest.approx(20 / 3)


WRITE = """
import sys
import numpy as np
from embodied_rm.data.video.files import write_video
rng = np.random.default_rng(0)
squares = np.kron(rng.integers(40, 216, (10, 10)), np.ones((16, 16)))
moving = np.cumsum(rng.integers(-6, 7, (40, 160, 160, 3)), axis=0) // 2
write_video(sys.argv[1], np.clip(squares[None, :, :, None] + moving, 0, 255).astype(np.uint8), 20)
"""


def test_written_bytes_do_not_depend_on_uninitialized_memory(tmp_path):
    """glibc fills allocated memory with a pattern; x264's macroblock tree read uninitialized memory."""
    heap = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TOP_PAD_": "100000000"}
    for fill in ("0", "1", "2"):
        words = [sys.executable, "-c", WRITE, str(tmp_path / f"{fill}.mp4")]
        subprocess.run(words, check=True, env={**os.environ, **heap, "MALLOC_PERTURB_": fill})
    assert len({(tmp_path / f"{fill}.mp4").read_bytes() for fill in "012"}) == 1


def test_pixels_do_not_depend_on_earlier_videos_in_the_file(tmp_path):
    """Otherwise image hashes would not match (`embodied_rm.data.provenance`)."""
    first, second = (np.random.default_rng(seed).integers(0, 256, (5, H, W, 3), np.uint8) for seed in range(2))
    write_video(tmp_path / "alone.mp4", second, 10)
    with VideoWriter(tmp_path / "both.mp4", 10, (H, W)) as writer:
        writer.add(first)
        writer.add(second)
    np.testing.assert_array_equal(read_frames(tmp_path / "both.mp4")[5:], read_frames(tmp_path / "alone.mp4"))


@pytest.mark.parametrize(("height", "width"), [(47, 64), (48, 63), (1, 1)])
def test_odd_sizes_are_rejected(tmp_path, height, width):
    with pytest.raises(DataError, match=rf"a\.mp4.*even height and width.*{width}x{height}"):
        write_video(tmp_path / "a.mp4", np.zeros((3, height, width, 3), np.uint8), 10)


def test_frames_of_another_size_or_type_are_rejected(tmp_path):
    with VideoWriter(tmp_path / "a.mp4", 10, (H, W)) as writer:
        writer.add(paint_frames(range(3)))
        for frames in (np.zeros((1, W, H, 3), np.uint8), np.zeros((1, H, W, 3), np.float32)):
            with pytest.raises(DataError, match=rf"uint8 \[T, {H}, {W}, 3\]"):
                writer.add(frames)
    with pytest.raises(DataError, match="T > 0"):
        write_video(tmp_path / "b.mp4", np.zeros((0, H, W, 3), np.uint8), 10)


def index_at_end_cut(path: Path) -> None:
    truncate(path, path.stat().st_size - 10)


def middle_cut(path: Path) -> None:
    truncate(path, path.stat().st_size // 2)


def index_in_front_middle_cut(path: Path) -> None:
    remuxed = remux_faststart(path, path.with_name("moved.mp4"))
    remuxed.replace(path)
    truncate(path, path.stat().st_size // 2)


def index_missing(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b"moov") - 4])


def no_images(path: Path) -> None:
    path.unlink()
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=48000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 48000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())


CORRUPTIONS = {
    "missing": (lambda path: path.unlink(), "does not exist"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "not a regular file"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "git-lfs pointer": (replace_by_lfs_pointer, "git-lfs pointer"),
    "a web page": (lambda path: path.write_text("<!DOCTYPE html><html>404</html>"), NO_VIDEO),
    "playlist": (
        lambda path: path.write_text("#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n"),
        NO_VIDEO,
    ),
    "noise": (lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)), NO_VIDEO),
    "cut in the middle": (middle_cut, "is cut short"),
    "index in front, cut in the middle": (index_in_front_middle_cut, "is cut short"),
    "index cut": (index_at_end_cut, "is cut short"),
    "index missing": (index_missing, "is cut short: its index"),
    "audio only": (no_images, "no video stream"),
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_issue_is_named_with_its_file(video, decoder, tmp_path, corruption):
    path = tmp_path / "broken.mp4"
    path.write_bytes(video.read_bytes())
    damage, message = CORRUPTIONS[corruption]
    damage(path)
    for read in (decoder.probe, read_frames, lambda p: read_frames(p, timestamps=[0.0])):
        with pytest.raises(DataError) as caught:
            read(path)
        assert "broken.mp4" in str(caught.value) and message in str(caught.value)


def test_exception_leaves_no_video(tmp_path):
    with pytest.raises(KeyboardInterrupt), VideoWriter(tmp_path / "a.mp4", 10, (H, W)) as writer:
        writer.add(paint_frames(range(50)))
        raise KeyboardInterrupt
    assert not (tmp_path / "a.mp4").exists()


@pytest.mark.parametrize("index_in_front", [False, True])
def test_truncated_file_is_rejected_or_complete(video, tmp_path, decoder, index_in_front):
    source = remux_faststart(video, tmp_path / "moved.mp4") if index_in_front else video
    content = source.read_bytes()
    rng = np.random.default_rng(1)
    cuts = {0, 1, 8, 40, len(content) - 1, *rng.integers(len(content), size=30)}
    path = tmp_path / "prefix.mp4"
    for size in cuts:
        path.write_bytes(content[:size])
        try:
            info = decoder.probe(path)
        except DataError as refusal:
            assert "prefix.mp4" in str(refusal)
        else:
            assert read_numbers(decoder.read(path, info.timestamps, FPS)) == list(range(LENGTH))


def test_flipped_bytes_are_rejected_or_read_in_full(video, tmp_path, decoder):
    """H.264 has no checksums: wrong pixels are not always detected, a wrong number of frames is."""
    content = video.read_bytes()
    rng = np.random.default_rng(2)
    path = tmp_path / "flipped.mp4"
    for _ in range(60):
        damaged = bytearray(content)
        start = int(rng.integers(len(content)))
        damaged[start : start + int(rng.integers(1, 60))] = rng.bytes(len(damaged[start : start + 30]))
        path.write_bytes(damaged)
        try:
            info = decoder.probe(path)
            assert len(decoder.read(path, info.timestamps, info.fps)) == len(info)
        except DataError as refusal:
            assert "flipped.mp4" in str(refusal)


def test_killed_child_is_replaced(video, decoder):
    decoder.probe(video)
    os.kill(decoder._process.pid, signal.SIGKILL)
    assert read_numbers(decoder.read(video, [7 / FPS], FPS)) == [7]


def test_file_that_crashes_the_child_raises_an_error(video, tmp_path, monkeypatch):
    """Simulates a crash in FFmpeg: the child dies of a signal as soon as it opens the file."""
    worker = tmp_path / "decode.py"
    shutil.copy(VideoDecoder.script.with_name("framing.py"), tmp_path)
    crash_code = "import os, json\nreal = framing.FileCache.get\ndef get(self, path, *options):\n"
    crash_code += "    if 'bomb' in path: os.kill(os.getpid(), 11)\n"
    crash_code += "    return real(self, path, *options)\nframing.FileCache.get = get\n"
    script = VideoDecoder.script.read_text()
    worker.write_text(script.replace('if __name__ == "__main__":', crash_code + 'if __name__ == "__main__":'))
    monkeypatch.setattr(VideoDecoder, "script", worker)
    (tmp_path / "bomb.mp4").write_bytes(video.read_bytes())
    with VideoDecoder() as decoder:
        with pytest.raises(DataError, match=r"bomb\.mp4.*killed by signal 11"):
            decoder.probe(tmp_path / "bomb.mp4")
        assert len(decoder.probe(video)) == LENGTH


def run_in_fork(check):
    """Return whether a check holds in a forked process, which never goes on with the tests."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a deadlock ends
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_forked_or_pickled_decoder_starts_its_own_child(video, decoder):
    decoder.probe(video)
    pid = decoder._process.pid
    copy = pickle.loads(pickle.dumps(decoder))  # noqa: S301 (our own bytes)
    assert read_numbers(copy.read(video, [3 / FPS], FPS)) == [3]
    assert copy._process.pid != pid
    copy.close()

    def read_and_close():
        is_right = read_numbers(decoder.read(video, [5 / FPS], FPS)) == [5] and decoder._process.pid != pid
        decoder.close()
        return is_right

    assert run_in_fork(read_and_close)
    assert decoder._process.pid == pid and decoder._process.poll() is None
    assert read_numbers(decoder.read(video, [9 / FPS], FPS)) == [9]


def test_a_fork_during_a_request_of_another_thread_can_read(video, decoder):
    with decoder._lock:  # the thread that would release it does not exist in the child
        assert run_in_fork(lambda: read_numbers(decoder.read(video, [5 / FPS], FPS)) == [5])


def test_rewritten_file_is_reread(tmp_path, decoder):
    path = tmp_path / "a.mp4"
    for first in (0, 1000):
        write_video(path, paint_frames(range(first, first + 20)), FPS)
        assert read_numbers(decoder.read(path, [1.0], FPS)) == [first + 10]


def test_closing_leaves_the_child_without_its_files_to_the_next_dataset(video, tmp_path, monkeypatch):
    monkeypatch.setattr("embodied_rm.data.subprocess_worker._IDLE", {})
    write_video(tmp_path / "next.mp4", paint_frames(range(2)), FPS)
    decoders = [VideoDecoder() for _ in range(MAX_IDLE_PROCESSES + 1)]
    for decoder in decoders:
        decoder.probe(video)
    processes = [decoder._process for decoder in decoders]
    for decoder in decoders:
        decoder.close()
    assert processes.pop().poll() is not None, "two others wait"
    with VideoDecoder() as decoder:
        decoder.probe(tmp_path / "next.mp4")
        assert decoder._process in processes
        descriptors = Path(f"/proc/{decoder._process.pid}/fd")
        assert str(video) not in [str(descriptor.readlink()) for descriptor in descriptors.iterdir()]


def test_a_child_in_the_middle_of_a_request_ends(video, decoder):
    decoder.probe(video)
    process = decoder._process
    with decoder._lock:
        decoder.close()
    assert process.poll() is not None
    assert read_numbers(decoder.read(video, [3 / FPS], FPS)) == [3]


def test_the_child_imports_nothing_heavy():
    code = f"import sys; sys.path.insert(0, {str(VideoDecoder.script.parent)!r}); import decode; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "pyarrow", "gymnasium", "mujoco", "embodied_rm"} & set(modules)
