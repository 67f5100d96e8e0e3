"""Whether LeRobot's own package opens what we write, and we open what it writes: python benchmarks/lerobot_exchange.py

`lerobot` pins an older torch, so it lives in an environment of its own (`make lerobot`), in which this script starts
`lerobot_side.py`. Writes docs/results/lerobot.md.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embodied_rm.cli.benchmarks import machine
from embodied_rm.data.catalog import open_data
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.types import Episode, Frames, Step

SIDE = Path(__file__).with_name("lerobot_side.py")
LENGTHS = (17, 30, 9, 24)
FPS, SIZE, VIEWS = 10, (48, 64), ("front", "wrist")
ALIKE_DB = 30.0
"""Least likeness of pictures that went through H.264 or AV1 with those that were stored, peak signal to noise."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """One direction of the exchange."""

    what: str
    version: str
    frames: int
    likeness: float
    """The least of all frames with what was stored, dB."""
    alike: float
    """The least of all frames as both packages decode the same file, dB: their conversions of colour differ."""
    same: bool
    """Whether each frame that they read is nearest to the one that we read in its place, of all of its film."""
    numbers: bool
    """Whether states, actions and instructions are equal."""


def pictures(seed: int, length: int) -> Frames:
    """uint8 [T, H, W, 3]: smooth, moving, another in every episode."""
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    t = np.arange(length)[:, None, None]
    waves = [np.sin(x / 9 + t / 5 + seed), np.cos(y / 7 - t / 4 + seed), np.sin((x + y) / 11 + t / 3)]
    return (127 + 100 * np.stack(waves, -1)).astype(np.uint8)


def episodes() -> list[Episode]:
    """What is exchanged."""
    return [
        Episode(
            name=f"trial_{i}",
            views={view: pictures(3 * i + v, length) for v, view in enumerate(VIEWS)},
            instruction=f"do thing {i % 2}",
            fps=FPS,
            steps=(Step(name="reach", start=0, end=length // 2), Step(name="lift", start=length // 2, end=length)),
            success=bool(i % 2),
            state=np.random.default_rng(i).normal(size=(length, 5)).astype(np.float32),
            action=np.random.default_rng(100 + i).normal(size=(length, 3)).astype(np.float32),
        )
        for i, length in enumerate(LENGTHS)
    ]


def stored(path: Path, sent: list[Episode]) -> None:
    """The episodes as arrays that any environment can read."""
    columns: dict[str, np.ndarray] = {"fps": np.array(FPS), "count": np.array(len(sent))}
    for i, episode in enumerate(sent):
        assert episode.state is not None and episode.action is not None
        columns |= {f"{i}/{view}": frames for view, frames in episode.views.items()}
        columns |= {f"{i}/state": episode.state, f"{i}/action": episode.action}
        columns[f"{i}/instruction"] = np.array(episode.instruction)
    np.savez(path, allow_pickle=False, **columns)


def other_side(python: Path, *arguments: object) -> str:
    """What LeRobot's package says: the last line of `lerobot_side.py`."""
    command = [str(python), str(SIDE), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout.strip().splitlines()[-1]


def compared(what: str, version: str, ours: Path, theirs: Path, sent: list[Episode]) -> Found:
    """A dataset as we read it, as they do (arrays in `theirs`), and as it was sent."""
    source, read = open_data(ours), np.load(theirs, allow_pickle=False)
    if source.faults or len(source) != len(sent):
        raise SystemExit(f"{what}: {'; '.join(map(str, source.faults))}; {len(source)} of {len(sent)} episodes")
    likeness, alike, same, equal = np.inf, np.inf, True, True
    for i, (episode, before) in enumerate(zip(source, sent, strict=True)):
        for view, frames in episode.views.items():
            there = read[f"{i}/{view}"]
            likeness = min(likeness, float(decibels(before.views[view], frames).min()))
            alike = min(alike, float(decibels(there, frames).min()))
            same &= all(int(decibels(picture[None], frames).argmax()) == t for t, picture in enumerate(there))
        for key in ("state", "action"):
            column = np.asarray(getattr(before, key))
            equal &= np.array_equal(getattr(episode, key), column) and np.array_equal(read[f"{i}/{key}"], column)
        equal &= episode.instruction == before.instruction == str(read[f"{i}/instruction"])
    count = sum(LENGTHS) * len(VIEWS)
    return Found(what=what, version=version, frames=count, likeness=likeness, alike=alike, same=same, numbers=equal)


def decibels(one: Frames, other: Frames) -> np.ndarray:
    """Peak signal to noise of each frame, [T]."""
    return 10 * np.log10(255**2 / np.maximum(np.mean((one.astype(float) - other) ** 2, axis=(1, 2, 3)), 1e-9))


def exchange(folder: Path, newer: Path, older: Path) -> list[Found]:
    """All three directions."""
    sent = episodes()
    stored(folder / "sent.npz", sent)
    with DatasetWriter(folder / "ours") as writer:
        for episode in sent:
            writer.add(episode)
    found = []
    for what, python, name in (
        ("written here, opened there", newer, "ours"),
        ("written there, opened here", newer, "v30"),
        ("written there, opened here", older, "v21"),
    ):
        if name != "ours":
            other_side(python, "write", folder / name, folder / "sent.npz")
        version = other_side(python, "read", folder / name, folder / f"{name}.npz")
        found.append(compared(what, version, folder / name, folder / f"{name}.npz", sent))
    return found


def report(found: list[Found]) -> str:
    """The page for docs/results."""
    lines = [
        "# Exchange with LeRobot",
        "",
        f"{len(LENGTHS)} episodes of two views of {SIZE[0]}x{SIZE[1]} with states, actions, instructions. Likeness: "
        f"the least of all frames with what was stored, and between the two readers, whose conversions of colour "
        f"differ, dB. Same: each frame is nearest to the one that the other reads in its place. {machine()}.",
        "",
        "    make lerobot",
        "",
        "| dataset | lerobot, format | frames | likeness | same frames | numbers and words |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {f.what} | {f.version} | {f.frames} | {f.likeness:.1f}, {f.alike:.1f} | {'yes' if f.same else '**no**'} | "
        f"{'equal' if f.numbers else '**differ**'} |"
        for f in found
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--newer", type=Path, required=True, help="python with lerobot 0.4.4, which writes v3.0")
    parser.add_argument("--older", type=Path, required=True, help="python with lerobot 0.3.3, which writes v2.1")
    parser.add_argument("--out", type=Path, default=Path("docs/results/lerobot.md"), help="the page")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = exchange(Path(folder), args.newer.absolute(), args.older.absolute())
    args.out.write_text(report(found))
    if not all(f.numbers and f.same and min(f.likeness, f.alike) >= ALIKE_DB for f in found):
        raise SystemExit("not what was stored: see the page")


if __name__ == "__main__":
    main()
