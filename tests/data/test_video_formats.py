"""Every codec and container that is read gives the frames that were written, and what is not read is named."""

from __future__ import annotations

import resource
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from painted_frames import truncate

from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.video.decoder import VideoDecoder
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.types import Frames, IntArray

HEIGHT, WIDTH, PATCH, FPS = 96, 128, 32, 10
NUM_FRAMES = 40
MAX_LEVELS = 6.0  # largest error of the mean color of a patch, of 255
OPTIONS = {
    "libx264": {"crf": "18"},
    "libx265": {"crf": "18", "x265-params": "log-level=none"},
    "libsvtav1": {"crf": "30", "g": "2"},  # as LeRobot encodes
    "libvpx-vp9": {"crf": "18", "b": "0"},
    "libvpx": {"crf": "4", "b": "8000000"},
    "mpeg4": {"b": "8000000"},
    "mjpeg": {"q": "2"},
}


def patch_colors() -> IntArray:
    """The color of each patch of each frame, [T, rows, columns, 3]: no two frames or patches are alike."""
    rng = np.random.default_rng(0)
    return rng.integers(30, 226, (NUM_FRAMES, HEIGHT // PATCH, WIDTH // PATCH, 3))


COLORS = patch_colors()
IMAGES = COLORS.repeat(PATCH, axis=1).repeat(PATCH, axis=2).astype(np.uint8)


def mean_colors(frames: Frames) -> np.ndarray:
    """Return the mean color of the inside of each patch, [T, rows, columns, 3]; edges are blurred by codecs."""
    patches = frames.reshape(len(frames), HEIGHT // PATCH, PATCH, WIDTH // PATCH, PATCH, 3)
    return patches[:, :, 8:-8, :, 8:-8].mean(axis=(2, 4))


def write(path: Path, codec: str, pixel_format: str, times_ms: list[int] | None = None, **options: str) -> Path:
    container_format = {".webm": "webm", ".mkv": "matroska"}.get(path.suffix.lower(), path.suffix.lower()[1:])
    with av.open(str(path), "w", format="mp4" if container_format == "m4v" else container_format) as container:
        stream = container.add_stream(codec, rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pixel_format
        stream.options = {**OPTIONS.get(codec, {}), **options}
        for number, image in enumerate(IMAGES):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame = frame.reformat(format=pixel_format)
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            if times_ms is not None:
                frame.pts, frame.time_base = times_ms[number], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def decoder() -> Iterator[VideoDecoder]:
    with VideoDecoder() as decoder:
        yield decoder


def check_frames(decoder: VideoDecoder, path: Path, max_levels: float = MAX_LEVELS) -> None:
    """Compare every frame, read in order and at random."""
    info = decoder.probe(path)
    assert (len(info), info.height, info.width) == (NUM_FRAMES, HEIGHT, WIDTH)
    assert info.fps == pytest.approx(FPS, rel=1e-3)
    np.testing.assert_allclose(np.diff(info.timestamps), 1 / FPS, atol=2e-3)
    frames = decoder.read(path, info.timestamps, info.fps)
    assert np.abs(mean_colors(frames) - COLORS).max() <= max_levels
    for index in (33, 2, 38, 17):
        assert np.array_equal(decoder.read(path, [info.timestamps[index]], info.fps)[0], frames[index])


CODECS = {
    "AV1, LeRobot's default": ("libsvtav1", "yuv420p"),
    "AV1, 10 bits": ("libsvtav1", "yuv420p10le"),
    "HEVC": ("libx265", "yuv420p"),
    "HEVC, 10 bits": ("libx265", "yuv420p10le"),
    "VP9": ("libvpx-vp9", "yuv420p"),
    "H.264": ("libx264", "yuv420p"),
    "H.264, 10 bits, all colors": ("libx264", "yuv444p10le"),
}
VP9_10_BITS = Path(__file__).with_name("vp9_10_bits.mp4")
"""`IMAGES` in VP9 of 10 bits, which PyAV decodes and does not encode. The command line of ffmpeg wrote it: `ffmpeg -f
rawvideo -pix_fmt rgb24 -s 128x96 -r 10 -i - -pix_fmt yuv420p10le -c:v libvpx-vp9 -profile:v 2 -crf 30 -b:v 0`."""


@pytest.mark.parametrize("name", CODECS)
def test_each_frame_has_its_colors(name: str, decoder: VideoDecoder, tmp_path: Path) -> None:
    check_frames(decoder, write(tmp_path / "a.mp4", *CODECS[name]))


def test_each_frame_of_vp9_with_10_bits_has_its_colors(decoder: VideoDecoder) -> None:
    with av.open(str(VP9_10_BITS)) as container:
        assert next(container.decode(video=0)).format.name == "yuv420p10le"
    check_frames(decoder, VP9_10_BITS)


@pytest.mark.parametrize("name", ["AV1, LeRobot's default", "HEVC", "VP9"])
def test_decoders_side_by_side_give_the_same_frames(name: str, decoder: VideoDecoder, tmp_path: Path) -> None:
    """Four processes that decode at the same time, and one decoder that four threads share."""
    path = write(tmp_path / "a.mp4", *CODECS[name])
    info = decoder.probe(path)
    expected = decoder.read(path, info.timestamps, info.fps)
    start = threading.Barrier(4)

    def read(reader: VideoDecoder) -> bool:
        start.wait(60)
        frames = [reader.read(path, info.timestamps, info.fps) for _ in range(3)]
        return all(np.array_equal(each, expected) for each in frames)

    with ThreadPoolExecutor(4) as executor:
        decoders = [VideoDecoder() for _ in range(4)]
        assert list(executor.map(read, decoders)) == [True] * 4
        assert list(executor.map(read, [decoder] * 4)) == [True] * 4
        for each in decoders:
            each.close()


CONTAINERS = {
    "a.MP4": ("libx264", "yuv420p"),
    "a.mov": ("libx264", "yuv420p"),
    "b.MOV": ("prores_ks", "yuv422p10le"),
    "a.m4v": ("mpeg4", "yuv420p"),
    "a.3gp": ("libx264", "yuv420p"),
    "a.webm": ("libvpx-vp9", "yuv420p"),
    "b.WebM": ("libvpx", "yuv420p"),
    "c.webm": ("libsvtav1", "yuv420p"),
    "a.mkv": ("libx264", "yuv420p"),
    "b.mkv": ("ffv1", "yuv420p"),
    "a.avi": ("mjpeg", "yuvj420p"),
    "b.AVI": ("mpeg4", "yuv420p"),
    "a.gif": ("gif", "rgb8"),
}
GIF_LEVELS = 60  # of a palette of 256 colors, which stands for all


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_are_read_alone_and_as_a_recording(name: str, decoder: VideoDecoder, tmp_path: Path) -> None:
    """Beside the hidden files of other systems."""
    path = write(tmp_path / name, *CONTAINERS[name])
    check_frames(decoder, path, GIF_LEVELS if name == "a.gif" else MAX_LEVELS)
    (tmp_path / f"._{name}").write_bytes(b"not a video")
    for place, view in ((path, "video"), (tmp_path, name[0])):
        source = open_dataset(place, "move the bar")
        assert source.views == (view,) and source.meta[0].length == NUM_FRAMES and source.issues == ()
        frames = source.read_frames(0, 10, 12, views=[view], size=None).frames
        assert frames.shape == (2, 1, HEIGHT, WIDTH, 3)


def test_a_webm_that_a_browser_streamed_states_no_length(decoder: VideoDecoder, tmp_path: Path) -> None:
    """Neither its bytes nor its duration; frames that are cut off at its end cannot be noticed."""
    path = tmp_path / "a.webm"
    with av.open(str(path), "w", format="webm", options={"live": "1"}) as container:
        stream = container.add_stream("libvpx", rate=FPS)
        stream.width, stream.height, stream.pix_fmt, stream.options = WIDTH, HEIGHT, "yuv420p", OPTIONS["libvpx"]
        for image in IMAGES:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    assert b"\x18\x53\x80\x67\x01" + b"\xff" * 7 in path.read_bytes(), "the segment has an unknown size"
    check_frames(decoder, path)


def test_the_content_decides_and_not_the_name(decoder: VideoDecoder, tmp_path: Path) -> None:
    webm = write(tmp_path / "a.webm", "libvpx-vp9", "yuv420p")
    check_frames(decoder, webm.rename(tmp_path / "a.mp4"))


def test_views_of_different_containers_are_one_recording(tmp_path: Path) -> None:
    """Times of WebM are rounded to milliseconds."""
    for name in ("front.mp4", "side.webm", "top.avi", "wrist.gif"):
        write(tmp_path / name, *CONTAINERS[f"a.{name.rpartition('.')[2]}".replace("mp4", "MP4")])
    source = open_dataset(tmp_path, "move the bar")
    assert source.views == ("front", "side", "top", "wrist") and source.issues == ()
    for view, frames in source.episode(0).views.items():
        assert np.abs(mean_colors(frames) - COLORS).max() <= (GIF_LEVELS if view == "wrist" else MAX_LEVELS)


@pytest.mark.parametrize(("first", "second"), [("a.mp4", "a.mov"), ("a.mp4", "a.webm"), ("a.gif", "a.MKV")])
def test_two_videos_of_one_view_are_refused(first: str, second: str, tmp_path: Path) -> None:
    for name in (first, second):
        (tmp_path / name).write_bytes(b"any")
    with pytest.raises(DataError, match=r"the view a has two videos: remove a\.\w+ or the other one"):
        open_dataset(tmp_path, "move the bar")


@pytest.mark.parametrize("name", ["a.webm", "a.mkv", "a.avi", "a.gif"])
def test_files_that_are_cut_short_are_refused(name: str, decoder: VideoDecoder, tmp_path: Path) -> None:
    path = write(tmp_path / name, *CONTAINERS[name])
    whole = path.read_bytes()
    for size in (5, 20, 60, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole)
        truncate(path, size)
        with pytest.raises(DataError, match=rf"{name}: (the video is cut short|none of the videos that are read)"):
            decoder.probe(path)


@pytest.mark.parametrize("name", ["a.webm", "a.avi", "a.gif"])
def test_damaged_bytes_raise_an_error_or_are_read_in_full(name: str, decoder: VideoDecoder, tmp_path: Path) -> None:
    whole = write(tmp_path / name, *CONTAINERS[name]).read_bytes()
    rng, path = np.random.default_rng(0), tmp_path / f"damaged_{name}"
    for _ in range(25):
        content = bytearray(whole)
        start = int(rng.integers(len(whole) - 30))
        content[start : start + 30] = rng.bytes(30)
        path.write_bytes(content)
        try:
            info = decoder.probe(path)
            assert len(decoder.read(path, info.timestamps, info.fps)) == len(info)
        except DataError as error:
            assert f"damaged_{name}" in str(error)


COMMAND = r"`ffmpeg -i \S+/a\.{0} \S+/a\.mp4` converts"


@pytest.mark.parametrize("suffix", ["wmv", "flv", "MPG", "ts"])
def test_a_video_that_is_not_read_is_named_with_the_command_that_converts_it(suffix: str, tmp_path: Path) -> None:
    """Alone, in a recording, or in a folder of recordings."""
    folder = tmp_path / "trials" / "first"
    folder.mkdir(parents=True)
    path = folder / f"a.{suffix}"
    with av.open(str(path), "w", format={"MPG": "mpeg", "ts": "mpegts", "wmv": "asf"}.get(suffix, suffix)) as container:
        stream = container.add_stream("flv" if suffix == "flv" else "mpeg2video", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(IMAGES[0])))
        container.mux(stream.encode())
    for place in (path, folder, folder.parent):
        for instruction in ("move the bar", None):
            with pytest.raises(DataError, match=COMMAND.format(suffix)):
                open_dataset(place, instruction)


def test_nothing_in_a_folder_is_dropped_silently(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
    write(tmp_path / "first" / "a.mp4", "libx264", "yuv420p")
    (tmp_path / "first" / "b.wmv").write_bytes(b"any")
    (tmp_path / "second" / "a.ts").write_bytes(b"any")
    (tmp_path / "third" / "a.webm").write_bytes(b"any")
    (tmp_path / "all.flv").write_bytes(b"any")
    source = open_dataset(tmp_path, "move the bar")
    assert [meta.name for meta in source.meta] == ["first"]
    assert affected_episodes(source.issues) == ("second", "third")
    named = {issue.file.name: issue for issue in source.issues}
    assert set(named) == {"b.wmv", "a.ts", "a.webm", "all.flv"}
    assert all("ffmpeg -i" in issue.message for issue in source.issues)
    assert named["b.wmv"].episodes == named["all.flv"].episodes == ()


def test_recordings_beside_a_video_are_named(tmp_path: Path) -> None:
    for name in ("overview.mp4", "first/a.mp4", "second/a.mp4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, "libx264", "yuv420p")
    (issue,) = open_dataset(tmp_path, "move the bar").issues
    assert issue.message == "is read as one recording, so those in its folders are not: first, second"


def write_jpegs(path: Path, sizes: list[tuple[int, int]]) -> None:
    """Write a Motion JPEG video whose frames have sizes (height, width)."""
    with av.open(str(path), "w", format="matroska") as container:
        stream = container.add_stream("mjpeg", rate=FPS)
        stream.height, stream.width = sizes[0]
        stream.pix_fmt, stream.codec_context.color_range = "yuv420p", 2
        container.start_encoding()
        for time, (height, width) in enumerate(sizes):
            encoder = av.CodecContext.create("mjpeg", "w")
            assert isinstance(encoder, av.VideoCodecContext)
            encoder.height, encoder.width, encoder.pix_fmt = height, width, "yuv420p"
            encoder.time_base, encoder.color_range = Fraction(1, FPS), 2
            frame = av.VideoFrame.from_ndarray(IMAGES[time, :height, :width], format="rgb24").reformat(format="yuv420p")
            for packet in [*encoder.encode(frame), *encoder.encode(None)]:
                packet.stream, packet.time_base, packet.pts, packet.dts = stream, Fraction(1, FPS), time, time
                container.mux(packet)


@pytest.mark.parametrize("first_read", [[], [0.0, 0.1, 0.2, 0.5]])
def test_a_video_whose_frames_change_proportions_is_refused(tmp_path: Path, first_read: list[float]) -> None:
    """Resized to one size, the objects of one part would be stretched. What was read before does not matter."""
    write_jpegs(tmp_path / "front.mkv", [(96, 128)] * 3 + [(64, 128)] * 2 + [(96, 128)])
    message = r"two sizes: 128x96 is stated, and the one at 0.300 s has 128x64. Split it where the size changes"
    with VideoDecoder() as decoder:
        assert len(decoder.probe(tmp_path / "front.mkv")) == 6
        if first_read:
            assert decoder.read(tmp_path / "front.mkv", first_read, FPS, (48, 64)).shape == (4, 48, 64, 3)
        for times in ([0.3], [0.0, 0.3]):
            with pytest.raises(DataError, match=message):
                decoder.read(tmp_path / "front.mkv", times, FPS, (48, 64))


def test_a_video_may_change_its_resolution(tmp_path: Path) -> None:
    write_jpegs(tmp_path / "front.mkv", [(96, 128)] * 2 + [(48, 64)] * 2)
    with VideoDecoder() as decoder:
        assert decoder.read(tmp_path / "front.mkv", [0.0, 0.1, 0.2, 0.3], FPS).shape == (4, 96, 128, 3)


def test_a_decoder_of_videos_has_limited_memory(tmp_path: Path) -> None:
    write_jpegs(tmp_path / "front.mkv", [(96, 128)])
    with VideoDecoder() as decoder:
        decoder.probe(tmp_path / "front.mkv")
        assert decoder._process is not None
        limit, _ = resource.prlimit(decoder._process.pid, resource.RLIMIT_AS)
        assert 0 < limit < 16 << 30
        write_video(tmp_path / "large.mp4", np.zeros((2, 4096, 8192, 3), np.uint8), FPS)
        with pytest.raises(DataError, match=r"large\.mp4: it cannot be decoded"):
            resource.prlimit(decoder._process.pid, resource.RLIMIT_AS, (1 << 28, 1 << 28))
            decoder.probe(tmp_path / "large.mp4")
        decoder._process.kill()  # the next test needs one without this limit


def test_a_frame_without_a_time_is_damage(
    decoder: VideoDecoder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.mkv", *CONTAINERS["a.mkv"])
    stated, none = (b"\x81" + struct.pack(">h", time_ms) for time_ms in (100, -(2**15)))  # of a block of track 1
    path.write_bytes(path.read_bytes().replace(stated, none))
    with pytest.raises(DataError, match=r"a\.mkv: it is damaged: one of its frames has no time"):
        decoder.read(path, [0.0, 0.1, 0.2], FPS)
    assert capfd.readouterr().err == ""
