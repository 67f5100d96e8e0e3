"""`embodied-rm annotate`: steps and success of episodes, corrected on a page of this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.annotate.proposals import by_change
from embodied_rm.annotate.server import AnnotationServer
from embodied_rm.annotate.session import Session
from embodied_rm.cli.command import Command
from embodied_rm.cli.places import dataset_in
from embodied_rm.cli.recordings import recordings
from embodied_rm.data.annotation import Annotation
from embodied_rm.data.catalog import annotations_of
from embodied_rm.data.names import Names
from embodied_rm.run import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class AnnotateCommand:
    """What is annotated."""

    data: Path
    instruction: str | None = None
    steps: tuple[str, ...] = ()
    port: int = 0
    names: Names = field(default_factory=Names)


def start(config: AnnotateCommand, run: RunFolder, reporter: Reporter) -> None:
    """Serve the page until Ctrl-C, then tell what was saved."""
    source = recordings(config.data, reporter, config.instruction, config.names)
    store = annotations_of(dataset_in(config.data), source)
    if mended := store.mend():
        reporter.note(f"finished what an interrupted save had begun: {', '.join(mended)}")
    session = Session(source, store, by_change(config.steps), config.steps)
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
