"""`embodied-rm annotate`: steps and success of episodes, corrected on a page of this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from embodied_rm.annotate.proposals import Proposer, by_change, by_progress
from embodied_rm.annotate.server import AnnotationServer
from embodied_rm.annotate.session import Session
from embodied_rm.cli.command import Command
from embodied_rm.cli.places import dataset_in
from embodied_rm.cli.recordings import recordings
from embodied_rm.data.annotation import Annotation
from embodied_rm.data.catalog import annotations_of
from embodied_rm.data.names import Names
from embodied_rm.errors import UserError
from embodied_rm.models.fold import fold
from embodied_rm.models.judges.catalog import open_judge
from embodied_rm.models.judges.config import JudgeConfig
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Array, Episode

JUDGED = 64
"""Moments of an episode that a judge is asked about; between them its progress is interpolated."""


@dataclass(frozen=True, kw_only=True)
class AnnotateCommand:
    """What is annotated."""

    data: Path
    instruction: str | None = None
    steps: tuple[str, ...] = ()
    port: int = 0
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    names: Names = field(default_factory=Names)


def proposer(config: AnnotateCommand) -> Proposer:
    """Who proposes steps: the pictures' changes, or the progress that a judge sees. Raises `UserError` where that has
    no steps to cut it into."""
    if config.judge.layout is None:
        return by_change(config.steps)
    if not config.steps:
        raise UserError("a judge says how far a task is, not what its steps are: name them, steps=[...]")
    judge = open_judge(config.judge)

    def progress(episode: Episode) -> Array:
        at = np.unique(np.linspace(0, len(episode) - 1, JUDGED).round().astype(np.int64))
        few = {name: frames[at] for name, frames in episode.views.items()}
        (curve,) = fold(
            judge, [Episode(name=episode.name, views=few, instruction=episode.instruction, fps=episode.fps)]
        )
        return np.interp(np.arange(len(episode)), at, curve.value).astype(np.float32)

    return by_progress(progress, config.steps)


def start(config: AnnotateCommand, run: RunFolder, reporter: Reporter) -> None:
    """Serve the page until Ctrl-C, then tell what was saved."""
    source = recordings(config.data, reporter, config.instruction, config.names)
    store = annotations_of(dataset_in(config.data), source)
    if mended := store.mend():
        reporter.note(f"finished what an interrupted save had begun: {', '.join(mended)}")
    session = Session(source, store, proposer(config), config.steps)
    with AnnotationServer(session, config.port) as server:
        with_steps = sum(bool(meta.steps) for meta in source.meta)
        reporter.table("annotate", {"episodes": len(source), "with steps": with_steps, "views": source.views})
        reporter.note(f"open {server.url} in a browser; Ctrl-C ends")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
        session.close()
    saved = {source.meta[index].name: spoken(annotation) for index, annotation in sorted(session.saved.items())}
    reporter.table("saved", saved or {"episodes": 0})


def spoken(annotation: Annotation) -> str:
    """An annotation in a few words."""
    outcome = {True: "success", False: "failure", None: "success unknown"}[annotation.success]
    return f"{len(annotation.steps)} steps, {outcome}"


COMMAND = Command(schema=AnnotateCommand, start=start, keeps_run=False)
