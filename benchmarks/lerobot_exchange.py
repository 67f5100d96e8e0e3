"""Exchange of datasets with the `lerobot` package in both directions: python benchmarks/lerobot_exchange.py

`lerobot` pins an older torch, so it has its own Python environment (`make lerobot`), in which this script runs
`lerobot_worker.py`. Writes docs/results/lerobot.md.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.types import Episode, Frames, Subtask

WORKER_SCRIPT = Path(__file__).with_name("lerobot_worker.py")
EPISODE_LENGTHS = (17, 30, 9, 24)
FPS, IMAGE_SIZE, VIEW_NAMES = 10, (48, 64), ("front", "wrist")
MIN_PSNR_DB = 30.0
"""Minimum peak signal-to-noise ratio of images after H.264 or AV1."""


@dataclass(frozen=True, kw_only=True)
class ExchangeResult:
    """One direction of the exchange."""

    direction: str
    version: str
    num_frames: int
    min_psnr: float
    """Minimum over all frames, compared with the stored images, dB."""
    min_reader_psnr: float
    """Minimum over all frames between the two packages' decoders of the same file, dB: color conversions differ."""
    frames_aligned: bool
    """Whether each frame that `lerobot` reads is most similar to our frame of the same index."""
    values_equal: bool
    """Whether states, actions and instructions are equal."""


def make_images(seed: int, length: int) -> Frames:
    """Return smooth moving images, uint8 [T, H, W, 3], that differ in every episode."""
    y, x = np.mgrid[: IMAGE_SIZE[0], : IMAGE_SIZE[1]]
    t = np.arange(length)[:, None, None]
    waves = [np.sin(x / 9 + t / 5 + seed), np.cos(y / 7 - t / 4 + seed), np.sin((x + y) / 11 + t / 3)]
    return (127 + 100 * np.stack(waves, -1)).astype(np.uint8)


def make_episodes() -> list[Episode]:
    """Return the exchanged episodes."""
    return [
        Episode(
            name=f"trial_{i}",
            views={view: make_images(3 * i + v, length) for v, view in enumerate(VIEW_NAMES)},
            instruction=f"do thing {i % 2}",
            fps=FPS,
            subtasks=(
                Subtask(name="reach", start=0, end=length // 2),
                Subtask(name="lift", start=length // 2, end=length),
            ),
            success=bool(i % 2),
            state=np.random.default_rng(i).normal(size=(length, 5)).astype(np.float32),
            action=np.random.default_rng(100 + i).normal(size=(length, 3)).astype(np.float32),
        )
        for i, length in enumerate(EPISODE_LENGTHS)
    ]


def save_arrays(path: Path, episodes_sent: list[Episode]) -> None:
    """Save the episodes as arrays that any Python environment can read."""
    columns: dict[str, np.ndarray] = {"fps": np.array(FPS), "count": np.array(len(episodes_sent))}
    for i, episode in enumerate(episodes_sent):
        assert episode.state is not None and episode.action is not None
        columns |= {f"{i}/{view}": frames for view, frames in episode.views.items()}
        columns |= {f"{i}/state": episode.state, f"{i}/action": episode.action}
        columns[f"{i}/instruction"] = np.array(episode.instruction)
    np.savez(path, allow_pickle=False, **columns)


def run_worker(python: Path, *arguments: object) -> str:
    """Run `lerobot_worker.py` and return its last line."""
    command = [str(python), str(WORKER_SCRIPT), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
    return result.stdout.strip().splitlines()[-1]


def compare(
    direction: str, version: str, dataset_path: Path, arrays_path: Path, sent_episodes: list[Episode]
) -> ExchangeResult:
    """Compare a dataset as we read it, as `lerobot` reads it, and as it was written."""
    source, their_arrays = open_dataset(dataset_path), np.load(arrays_path, allow_pickle=False)
    if source.issues or len(source) != len(sent_episodes):
        raise SystemExit(
            f"{direction}: {'; '.join(map(str, source.issues))}; {len(source)} of {len(sent_episodes)} episodes"
        )
    min_psnr, min_reader_psnr, frames_aligned, values_equal = np.inf, np.inf, True, True
    for i, (episode, sent_episode) in enumerate(zip(source, sent_episodes, strict=True)):
        for view, frames in episode.views.items():
            their_frames = their_arrays[f"{i}/{view}"]
            min_psnr = min(min_psnr, float(frame_psnr(sent_episode.views[view], frames).min()))
            min_reader_psnr = min(min_reader_psnr, float(frame_psnr(their_frames, frames).min()))
            frames_aligned &= all(
                int(frame_psnr(image[None], frames).argmax()) == t for t, image in enumerate(their_frames)
            )
        for key in ("state", "action"):
            column = np.asarray(getattr(sent_episode, key))
            values_equal &= np.array_equal(getattr(episode, key), column) and np.array_equal(
                their_arrays[f"{i}/{key}"], column
            )
        values_equal &= episode.instruction == sent_episode.instruction == str(their_arrays[f"{i}/instruction"])
    count = sum(EPISODE_LENGTHS) * len(VIEW_NAMES)
    return ExchangeResult(
        direction=direction,
        version=version,
        num_frames=count,
        min_psnr=min_psnr,
        min_reader_psnr=min_reader_psnr,
        frames_aligned=frames_aligned,
        values_equal=values_equal,
    )


def frame_psnr(first: Frames, second: Frames) -> np.ndarray:
    """Return the peak signal-to-noise ratio of each frame, [T], dB."""
    return 10 * np.log10(255**2 / np.maximum(np.mean((first.astype(float) - second) ** 2, axis=(1, 2, 3)), 1e-9))


def run_exchange(folder: Path, v30_python: Path, v21_python: Path) -> list[ExchangeResult]:
    """Run all directions."""
    sent_episodes = make_episodes()
    save_arrays(folder / "sent.npz", sent_episodes)
    with DatasetWriter(folder / "embodied_rm") as writer:
        for episode in sent_episodes:
            writer.add(episode)
    results = []
    for direction, python, name in (
        ("embodied-rm to lerobot", v30_python, "embodied_rm"),
        ("lerobot to embodied-rm", v30_python, "v30"),
        ("lerobot to embodied-rm", v21_python, "v21"),
    ):
        if name != "embodied_rm":
            run_worker(python, "write", folder / name, folder / "sent.npz")
        version = run_worker(python, "read", folder / name, folder / f"{name}.npz")
        results.append(compare(direction, version, folder / name, folder / f"{name}.npz", sent_episodes))
    return results


def report(results: list[ExchangeResult]) -> str:
    """Return the page for docs/results."""
    lines = [
        "# Exchange with LeRobot",
        "",
        f"{len(EPISODE_LENGTHS)} episodes of two views of {IMAGE_SIZE[0]}x{IMAGE_SIZE[1]} with states, actions and "
        "instructions. PSNR: minimum over all frames, compared with the stored images and between the two readers, "
        "whose color conversions differ. Frames aligned: each frame is most similar to the frame of the same index of "
        f"the other reader. {describe_machine()}.",
        "",
        "    make lerobot",
        "",
        "| direction | lerobot, format | frames | PSNR, dB | frames aligned | values and instructions |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {result.direction} | {result.version} | {result.num_frames} | {result.min_psnr:.1f}, "
        f"{result.min_reader_psnr:.1f} | {'yes' if result.frames_aligned else '**no**'} | "
        f"{'equal' if result.values_equal else '**differ**'} |"
        for result in results
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--v30-python", type=Path, required=True, help="python with lerobot 0.4.4, which writes v3.0")
    parser.add_argument("--v21-python", type=Path, required=True, help="python with lerobot 0.3.3, which writes v2.1")
    parser.add_argument("--out", type=Path, default=Path("docs/results/lerobot.md"), help="results page")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = run_exchange(Path(folder), args.v30_python.absolute(), args.v21_python.absolute())
    args.out.write_text(report(results))
    if not all(
        result.values_equal and result.frames_aligned and min(result.min_psnr, result.min_reader_psnr) >= MIN_PSNR_DB
        for result in results
    ):
        raise SystemExit("the data differ: see the results page")


if __name__ == "__main__":
    main()
