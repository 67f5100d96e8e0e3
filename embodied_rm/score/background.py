"""Episodes are judged in a thread while whoever makes them goes on: films and labels that a model can learn from.

Source: ONI (arXiv 2410.23022): a large model labels what a learner meets, while it learns.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embodied_rm.data.lerobot.read import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import UserError
from embodied_rm.models.fold import film_of, fold_film
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score.scorer import Scorer
from embodied_rm.score.table import TABLE, episode_table, write_table
from embodied_rm.types import Episode, Progress

FILMS, CONFIG = "films", "config.json"
"""In the folder: the datasets, and who said what is in the table beside them."""


@dataclass(frozen=True, kw_only=True)
class LabellingConfig:
    """What of a learner's episodes is labelled."""

    worlds: int = 4
    """Whose episodes are filmed, the first ones of all."""
    every: int = 5
    """Control steps between two frames of a film; all of them are judged."""
    waiting: int = 16
    """Films that may wait for the judge: another one is dropped, and counted."""
    part: int = 16
    """Films that are stored together, in a dataset of their own."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise UserError(f"labelling.{name} must be >= 1, got {value}")


class BackgroundScorer:
    """`with BackgroundScorer(...) as labels: labels.offer(episode)`, and `labels.finish(reporter)` at the end.

    Leaves in its folder a dataset for every `part` episodes, all of which can be opened as one, and their scores as
    `embodied-rm score` leaves them, so that both can be learned from at any time. A folder that has some already gets
    more; of a run that was killed less than a part is lost. Raises `UserError` where another judge began it.
    """

    def __init__(self, scorer: Scorer, folder: Path, config: LabellingConfig, judge: str) -> None:
        """`judge`: the identity of who judges."""
        self.dropped = 0
        """Episodes that came while too many were waiting."""
        self._scorer, self._config, self._run = scorer, config, RunFolder(folder)
        self._films = folder / FILMS
        self._held: list[tuple[Episode, Progress]] = []
        self._waiting: deque[Future[None]] = deque()
        self._claim(judge)
        self._datasets, self._episodes, self._frames, self._tables = self._there()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="labels")

    def __len__(self) -> int:
        """Episodes that were labelled, and are stored or about to be."""
        return self._episodes + len(self._held)

    def __enter__(self) -> BackgroundScorer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def offer(self, episode: Episode) -> None:
        """Have it judged, unless too many are waiting. Raises what went wrong with an earlier one."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft().result()
        if len(self._waiting) < self._config.waiting:
            self._waiting.append(self._pool.submit(self._label, episode))
        else:
            self.dropped += 1

    def finish(self, reporter: Reporter) -> None:
        """Wait for those that are waiting, and store what is left. Raises what went wrong with any."""
        for future in reporter.track(self._waiting, "label", total=len(self._waiting)):
            future.result()
        self._waiting.clear()
        if self._held:
            self._store()

    def _label(self, episode: Episode) -> None:
        self._held.append((episode, fold_film(self._scorer.model, episode.instruction, [film_of(episode)])))
        if len(self._held) == self._config.part:
            self._store()

    def _store(self) -> None:
        """Labels first: those without films are of no consequence, films without labels would be missed."""
        tables, frames = [], self._frames
        for number, (episode, curve) in enumerate(self._held, self._episodes):
            meta = EpisodeMeta(name=episode.name, length=len(episode), instruction=episode.instruction)
            tables.append(episode_table(number, curve, meta, frames, self._scorer.interval_scale))
            frames += len(episode)
        write_table(self._run.file(TABLE), [*self._tables, *tables])
        with DatasetWriter(self._films / f"{self._datasets:05d}") as writer:
            for number, (episode, _) in enumerate(self._held, self._episodes):
                writer.add(replace(episode, name=f"episode_{number:06d}"))
        self._datasets, self._episodes, self._frames = self._datasets + 1, self._episodes + len(self._held), frames
        self._tables, self._held = [*self._tables, *tables], []

    def _claim(self, judge: str) -> None:
        """Write down who labels. Raises `UserError` where somebody else did."""
        if (self._run.path / CONFIG).exists():
            before = self._run.read_json(CONFIG)["config"]["judge"]
            if before != judge:
                raise UserError(f"{self._run.path}: another judge labelled this ({before[:12]}, now {judge[:12]})")
        self._run.write_json(CONFIG, {"config": {"judge": judge, "every": 1}})

    def _there(self) -> tuple[int, int, int, Sequence[pa.Table]]:
        """Datasets, episodes, frames and scores that are stored already; half a dataset is removed."""
        for left in self._films.glob(".*.partial-*"):
            shutil.rmtree(left)
        parts = [LeRobotDataset(path) for path in sorted(self._films.glob("*"))]
        if not parts:
            return 0, 0, 0, []
        episodes = sum(map(len, parts))
        table = pq.read_table(self._run.path / TABLE)
        return (
            len(parts),
            episodes,
            sum(meta.length for part in parts for meta in part.meta),
            [table.filter(pc.less(table["episode_index"], episodes))],
        )
