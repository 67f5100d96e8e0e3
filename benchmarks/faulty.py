"""A dataset with faults of every kind, each done to some of its episodes; for faulty_dataset.py and the tests."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lerobot_v21 import CHUNK, DATA, VIDEO, write_v21

from embodied_rm.data.catalog import open_data
from embodied_rm.data.faults import Fault, named
from embodied_rm.data.inspect import faults_inside
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.video.files import write_video
from embodied_rm.types import Episode, Frames

LENGTH, SIZE, FPS = 12, (32, 48), 10.0
VIEWS = ("front", "wrist")
LISTED = "meta/episodes.jsonl"
Damage = Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What came of looking through a damaged dataset."""

    kinds: int
    damaged: set[str]
    """Episodes that something was done to."""
    named: set[str]
    """Episodes that were named."""
    different: list[str]
    """Sound episodes whose pictures or numbers are not those of the undamaged dataset."""
    untold: list[str]
    """Kinds of which some episode's fault was told in other words than those of its kind."""


def pictures(index: int, length: int = LENGTH, size: tuple[int, int] = SIZE) -> Frames:
    """uint8 [T, H, W, 3]: smooth, and another in every frame of every episode."""
    height, width = size
    y, x = np.mgrid[:height, :width]
    t = np.arange(length)[:, None, None]
    shades = [2.0 * x + 5 * t, 3.0 * y + index % 97, x + y + 7 * t + index // 97]
    return np.stack([np.broadcast_to(shade, (length, height, width)) % 256 for shade in shades], -1).astype(np.uint8)


def episode(index: int) -> Episode:
    """The undamaged one."""
    rng = np.random.default_rng(index)
    return Episode(
        name=f"episode_{index:06d}",
        views={view: pictures(2 * index + i) for i, view in enumerate(VIEWS)},
        instruction=f"do thing {index % 3}",
        fps=FPS,
        state=rng.normal(size=(LENGTH, 5)).astype(np.float32),
        action=rng.normal(size=(LENGTH, 3)).astype(np.float32),
    )


def film(root: Path, index: int) -> Path:
    """The film of an episode's second view."""
    return root / VIDEO.format(index // CHUNK, index, VIEWS[1])


def rows(root: Path, index: int) -> Path:
    """An episode's numbers."""
    return root / DATA.format(index // CHUNK, index)


# What is done to a film


def no_film(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n")


def page(path: Path) -> None:
    path.write_text("<!DOCTYPE html><html><body>404: not found</body></html>\n" * 20)


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def tail(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def shorter(path: Path) -> None:
    write_video(path, pictures(0, LENGTH - 1), FPS)


def longer(path: Path) -> None:
    write_video(path, pictures(0, LENGTH + 1), FPS)


def smaller(path: Path) -> None:
    write_video(path, pictures(0, LENGTH, (16, 24)), FPS)


def faster(path: Path) -> None:
    write_video(path, pictures(0), 2 * FPS)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def away(path: Path) -> None:
    elsewhere = path.parents[4] / f"elsewhere-{path.stem}.mp4"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def other_codec(path: Path) -> None:
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("mjpeg", rate=int(FPS))
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuvj420p"
        for frame in pictures(0):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24").reformat(format="yuvj420p")))
        container.mux(stream.encode())


def flip(path: Path) -> None:
    """Overwrite a picture in the middle of the film, neither the first nor the last."""
    with av.open(str(path)) as container:
        packets = [(p.pos, p.size) for p in container.demux(video=0) if p.size]
    at, size = packets[len(packets) // 2]
    assert at is not None
    content = bytearray(path.read_bytes())
    content[at : at + size] = b"\xff" * size
    path.write_bytes(content)


# What is done to numbers


def edited(change: Callable[[pa.Table], pa.Table]) -> Damage:
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def cell(column: str, row: int, value: object) -> Damage:
    """Another value in one row."""

    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = value
        at = table.column_names.index(column)
        return table.set_column(at, column, pa.array(values, table.schema.field(column).type))

    return edited(change)


def texts(table: pa.Table) -> pa.Table:
    at = table.column_names.index("timestamp")
    return table.set_column(at, "timestamp", pa.array([str(t) for t in table["timestamp"].to_pylist()]))


def not_finite(path: Path) -> None:
    rows_there = pq.read_metadata(path).num_rows
    states = pq.read_table(path)["observation.state"].to_pylist()
    cell("observation.state", rows_there // 2, [float("nan"), *states[0][1:]])(path)


# What is done to the list of episodes


def entry(**fields: object) -> Callable[[str], str]:
    return lambda line: json.dumps({**json.loads(line), **fields})


FILM: dict[str, tuple[Damage, str]] = {
    "film missing": (no_film, "the video file does not exist"),
    "film empty": (empty, "the video file is empty"),
    "film a git-lfs pointer": (pointer, "git-lfs pointer"),
    "film a web page": (page, "not an mp4 video"),
    "film cut in half": (half, "is cut short"),
    "film cut at its end": (tail, "is cut short"),
    "film a frame too short": (shorter, f"has {LENGTH - 1} frames of episode"),
    "film a frame too long": (longer, f"has {LENGTH + 1} frames"),
    "film of another size": (smaller, "its pictures are 16x24"),
    "film of another rate": (faster, "not where 10 a second have it"),
    "film a folder": (folder, "not a regular file"),
    "film a link out of the dataset": (away, "leads out of the dataset's folder"),
    "film of an unknown codec": (other_codec, "codec 'mjpeg' is not supported"),
    "film damaged in its middle": (flip, ""),
}
ROWS: dict[str, tuple[Damage, str]] = {
    "rows missing": (no_film, "the parquet file does not exist"),
    "rows without footer": (half, "cut short or not parquet"),
    "rows a git-lfs pointer": (pointer, "git-lfs pointer"),
    "rows a web page": (page, "cut short or not parquet"),
    "last row missing": (edited(lambda table: table.slice(0, LENGTH - 1)), f"has {LENGTH - 1} rows"),
    "a row missing in between": (
        edited(lambda table: table.take([*range(4), *range(5, LENGTH)])),
        f"has {LENGTH - 1} rows",
    ),
    "time goes back": (cell("timestamp", 6, 0.1), "timestamp is 0.1 in frame 6"),
    "time missing": (cell("timestamp", 6, None), "timestamp is nan in frame 6"),
    "time as text": (edited(texts), "holds string where numbers are due"),
    "frame counted twice": (cell("frame_index", 6, 5), "frame_index is 5 in frame 6"),
    "row of another episode": (cell("episode_index", 6, 7_777), f"has {LENGTH - 1} rows"),
    "gap in the index": (cell("index", 6, 123_456), "index is 123456 in frame 6"),
    "unknown task": (cell("task_index", 6, 99), "names no task"),
    "column missing": (edited(lambda table: table.drop_columns("action")), "column action is missing"),
    "number missing": (cell("action", 6, None), "action is missing in a row"),
    "number not finite": (not_finite, f"is not finite at frame {LENGTH // 2}"),
    "row of another length": (cell("action", 6, [0.0]), "rows of different length"),
}
LINES: dict[str, tuple[Callable[[str], str], str]] = {
    "entry cut": (lambda line: line[: len(line) // 2], "is not valid JSON"),
    "entry without length": (entry(length=None), "has length None"),
    "entry of no frames": (entry(length=0), "has length 0"),
    "entry without instruction": (entry(tasks=[]), "has no tasks"),
    "entry of another length": (entry(length=LENGTH + 1), f"has {LENGTH} rows of episode"),
    "entry missing": (lambda line: "", "is not listed"),
    "entry twice": (lambda line: f"{line}\n{line}", "is listed 2 times"),
}
KINDS = [*FILM, *ROWS, *LINES]


def damage(root: Path, episodes: int, of_each: int) -> dict[str, str]:
    """Do every kind of fault to so many episodes, drawn by chance; episode -> kind."""
    assert len(KINDS) * of_each < episodes
    drawn = np.random.default_rng(0).permutation(episodes)[: len(KINDS) * of_each].tolist()
    done = dict(zip(drawn, itertools.cycle(KINDS), strict=False))
    lines = (root / LISTED).read_text().splitlines()
    for index, kind in done.items():
        if kind in FILM:
            FILM[kind][0](film(root, index))
        elif kind in ROWS:
            ROWS[kind][0](rows(root, index))
        else:
            lines[index] = LINES[kind][0](lines[index])
    (root / LISTED).write_text("\n".join(lines))
    return {f"episode_{index:06d}": kind for index, kind in done.items()}


def found_in(source: EpisodeSource) -> Iterator[Fault]:
    """All that is wrong with a dataset, inside its files too."""
    yield from source.faults
    for index in range(len(source)):
        yield from faults_inside(source, index)


def tried(where: Path, *, episodes: int, of_each: int) -> Tried:
    """Write a dataset, damage a copy, look through it and read what is left."""
    whole = write_v21(where / "whole", [episode(i) for i in range(episodes)])
    root = where / "damaged"
    shutil.copytree(whole, root)
    done = damage(root, episodes, of_each)
    source = open_data(root)
    faults = list(found_in(source))
    names = set(named(faults))
    said = {**{k: text for k, (_, text) in FILM.items()}, **{k: text for k, (_, text) in ROWS.items()}}
    said |= {k: text for k, (_, text) in LINES.items()}
    untold = {
        kind
        for name, kind in done.items()
        if not any(name in fault.episodes and said[kind] in fault.what for fault in faults)
    }
    return Tried(
        kinds=len(KINDS),
        damaged=set(done),
        named=names,
        different=differing(open_data(whole), source, names),
        untold=sorted(untold),
    )


def differing(whole: EpisodeSource, source: EpisodeSource, bad: set[str]) -> list[str]:
    """The episodes of `source` that are not bad and not the same as in the whole dataset, to the last bit."""
    places = {meta.name: row for row, meta in enumerate(whole.meta)}
    sound = [row for row, meta in enumerate(source.meta) if meta.name not in bad]
    missing = set(places) - bad - {source.meta[row].name for row in sound}
    return sorted(missing) + [
        source.meta[row].name
        for row in sound
        if not same(source.episode(row), whole.episode(places[source.meta[row].name]))
    ]


def same(one: Episode, other: Episode) -> bool:
    """Whether pictures, numbers and words are equal."""
    films = all(np.array_equal(one.views[view], other.views[view]) for view in VIEWS)
    numbers = np.array_equal(one.state, other.state) and np.array_equal(one.action, other.action)  # type: ignore[arg-type]
    return films and numbers and one.instruction == other.instruction
