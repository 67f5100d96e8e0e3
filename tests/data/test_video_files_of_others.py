"""Videos as cameras and other tools write them: the codecs, turned, in other files, sizes and rates."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from painted_frames import paint_frames, read_numbers
from PIL import Image
from real_data import REAL_DATA

import embodied_rm as erm
from embodied_rm.data.block_reader import FRAMES_PER_BLOCK, iter_episode_blocks
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.video.decoder import VideoDecoder
from embodied_rm.types import Frames

HEIGHT, WIDTH, FPS = 96, 160, 10
NUM_FRAMES = 12
MIN_PSNR_DB = 27  # sharp edges of color lose most; a wrong corner leaves 10
HIGH_QUALITY = {
    "libx264": {"crf": "18"},
    "libx265": {"crf": "18", "x265-params": "log-level=none"},
    "libsvtav1": {"crf": "20"},
    "libvpx-vp9": {"crf": "18", "b": "0"},
    "mpeg4": {"b": "8000000"},
}
TASK = "drawer"  # of BridgeData, with which the names of its episodes start


@pytest.fixture(scope="module")
def decoder() -> Iterator[VideoDecoder]:
    with VideoDecoder() as decoder:
        yield decoder


@pytest.fixture(scope="module")
def images() -> Frames:
    """Each corner has a color of its own; a bar moves."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    corner = 2 * (rows >= HEIGHT // 2) + (columns >= WIDTH // 2)
    image = np.array([[200, 40, 40], [40, 200, 40], [40, 40, 200], [200, 200, 40]], np.uint8)[corner]
    frames = np.repeat(image[None], NUM_FRAMES, axis=0)
    for time in range(NUM_FRAMES):
        frames[time, :, 8 * time : 8 * time + 16] = 128
    return frames


def write(
    path: Path,
    frames: Frames,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    turn_deg: int = 0,
    fps: Fraction | int = FPS,
) -> Path:
    """Write a video that is to be shown turned by an angle, counterclockwise."""
    time_base = Fraction(1, 1000)
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = frames.shape[2], frames.shape[1], pixel_format
        stream.options = HIGH_QUALITY[codec]
        stream.codec_context.time_base = time_base
        if turn_deg:
            stream.set_display_rotation(turn_deg)
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            frame.pts, frame.time_base = round(number / Fraction(fps) / time_base), time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def read(decoder: VideoDecoder, path: Path) -> Frames:
    info = decoder.probe(path)
    frames = decoder.read(path, info.timestamps, info.fps)
    assert frames.shape[1:3] == (info.height, info.width)
    return frames


def psnr_db(a: Frames, b: Frames) -> float:
    return float(10 * np.log10(255**2 / np.square(a.astype(float) - b).mean()))


@pytest.mark.parametrize(
    ("codec", "pixel_format"),
    [
        ("libx264", "yuv420p"),
        ("libx264", "yuv444p"),
        ("libx265", "yuv420p10le"),
        ("libsvtav1", "yuv420p"),
        ("libsvtav1", "yuv420p10le"),
        ("libvpx-vp9", "yuv420p"),
        ("mpeg4", "yuv420p"),
    ],
)
def test_codecs(codec, pixel_format, images, decoder, tmp_path):
    decoded = read(decoder, write(tmp_path / "a.mp4", images, codec, pixel_format))
    assert psnr_db(decoded, images) > MIN_PSNR_DB


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_turned_frames_are_read_as_players_show_them(turns, images, decoder, tmp_path):
    """A phone stores what its sensor sees, and how to turn it."""
    stored = np.rot90(images, -turns, axes=(1, 2))
    decoded = read(decoder, write(tmp_path / "a.mp4", stored, turn_deg=90 * turns))
    assert psnr_db(decoded, images) > MIN_PSNR_DB
    smaller = decoder.read(tmp_path / "a.mp4", [0.0], FPS, size=(HEIGHT // 2, WIDTH // 2))[0]
    assert psnr_db(smaller[::4, ::4], images[0, ::8, ::8]) > MIN_PSNR_DB / 2


@pytest.mark.parametrize(
    ("matrix", "show"),
    [
        ((0, 1, -1, 0), lambda frames: np.rot90(frames, -1, axes=(1, 2))),  # right is shown as down: clockwise
        ((0, -1, 1, 0), lambda frames: np.rot90(frames, 1, axes=(1, 2))),
        ((-1, 0, 0, 1), lambda frames: frames[:, :, ::-1]),  # a selfie camera
        ((1, 0, 0, -1), lambda frames: frames[:, ::-1]),
        ((0, 1, 1, 0), lambda frames: frames.swapaxes(1, 2)),
        ((0, -1, -1, 0), lambda frames: np.rot90(frames, 2, axes=(1, 2)).swapaxes(1, 2)),
    ],
)
def test_the_orientation_is_that_of_the_standard(matrix, show, images, decoder, tmp_path):
    """ISO/IEC 14496-12, 8.3.2: the matrix (a, b, c, d) shows a pixel (x, y) at (a x + c y, b x + d y)."""
    path = write(tmp_path / "a.mp4", images, turn_deg=180)
    content = path.read_bytes()
    one = 1 << 16
    half_turn, wanted = (
        b"".join((value * one).to_bytes(4, "big", signed=True) for value in (a, b, 0, c, d, 0))
        for a, b, c, d in ((-1, 0, 0, -1), matrix)
    )
    assert content.count(half_turn) == 1
    path.write_bytes(content.replace(half_turn, wanted))
    assert psnr_db(read(decoder, path), show(images)) > MIN_PSNR_DB


def test_a_video_of_ten_hours_is_read_in_small_blocks(tmp_path):
    """One frame per minute: as long as a shift."""
    num_frames = 600
    source = open_dataset(
        write(tmp_path / "a.mp4", paint_frames(range(num_frames)), fps=Fraction(1, 60)), "watch the door"
    )
    assert source.meta[0].length == num_frames and source.frame_rate(0) == pytest.approx(1 / 60)
    blocks = [views.frames[:, 0] for _, views in iter_episode_blocks(source, 0, source.views, None)]
    assert max(map(len, blocks)) <= FRAMES_PER_BLOCK
    assert read_numbers(np.concatenate(blocks)) == list(range(num_frames))
    assert read_numbers(source.episode(0, stride=100).views["video"]) == [0, 100, 200, 300, 400, 500, 599]


# However a real video is stored, the scores from a demonstration are the same.


@pytest.fixture(scope="module")
def rollouts() -> list[Frames]:
    """Two successes of a task, uint8 [T, 240, 320, 3], at 5 frames per second."""
    source = open_dataset(REAL_DATA / "bridge_rollouts")
    rows = [row for row, meta in enumerate(source.meta) if meta.name.startswith(TASK) and meta.success]
    return [source.episode(row, stride=3).views[source.views[0]] for row in rows[:2]]


@pytest.fixture(scope="module")
def model(rollouts: list[Frames], tmp_path_factory: pytest.TempPathFactory) -> erm.RewardModel:
    return erm.from_demonstration(write(tmp_path_factory.mktemp("demonstration") / "a.mp4", rollouts[0], fps=5))


@pytest.fixture(scope="module")
def progress(model, rollouts: list[Frames], tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    scores = score(model, write(tmp_path_factory.mktemp("plain") / "a.mp4", rollouts[1], fps=5))
    assert scores[0] < 0.2 and scores.max() - scores[0] > 0.4
    return scores


def score(model, path: Path, stride: int = 1) -> np.ndarray:
    return model.score(open_dataset(path, "as demonstrated").episode(0, stride=stride).views).progress


@pytest.mark.parametrize("codec", ["libx265", "libsvtav1", "libvpx-vp9", "mpeg4"])
def test_scores_of_codecs(codec, model, rollouts, progress, tmp_path):
    """AV1 smooths textures that the other codecs keep, and moves the curve most."""
    scores = score(model, write(tmp_path / "a.mp4", rollouts[1], codec, fps=5))
    assert np.abs(scores - progress).mean() < 0.1
    assert np.corrcoef(scores, progress)[0, 1] > 0.97


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_scores_of_turned_videos(turns, model, rollouts, progress, tmp_path):
    stored = np.rot90(rollouts[1], -turns, axes=(1, 2))
    scores = score(model, write(tmp_path / "a.mp4", stored, turn_deg=90 * turns, fps=5))
    assert np.abs(scores - progress).mean() < 0.05


def test_scores_of_larger_images(model, rollouts, progress, tmp_path):
    larger = np.stack([np.array(Image.fromarray(image).resize((854, 640))) for image in rollouts[1]])
    assert np.abs(score(model, write(tmp_path / "a.mp4", larger, fps=5)) - progress).mean() < 0.05


def test_scores_of_twice_the_rate(model, rollouts, progress, tmp_path):
    doubled = write(tmp_path / "a.mp4", np.repeat(rollouts[1], 2, axis=0), fps=10)
    assert np.abs(score(model, doubled, stride=2)[: len(progress)] - progress).mean() < 0.05


def test_scores_of_one_frame(model, rollouts, tmp_path):
    scores = score(model, write(tmp_path / "a.mp4", rollouts[1][:1]))
    assert scores.shape == (1,) and scores[0] < 0.2
