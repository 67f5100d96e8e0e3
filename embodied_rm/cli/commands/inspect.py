"""`embodied-rm inspect`: all that is wrong with a dataset, by episode and file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from embodied_rm.cli.command import Command
from embodied_rm.cli.places import dataset_in
from embodied_rm.cli.recordings import tell
from embodied_rm.cli.reports import panel
from embodied_rm.data.catalog import open_data
from embodied_rm.data.faults import Fault, named
from embodied_rm.data.inspect import faults_inside
from embodied_rm.data.names import Names
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError, UnmetError
from embodied_rm.report import Panel, Report, Table, write_report
from embodied_rm.run import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class InspectCommand:
    """What is looked through."""

    data: Path
    instruction: str | None = None
    decode: bool = True
    shown: int = 6
    strict: bool = False
    names: Names = field(default_factory=Names)


def start(config: InspectCommand, run: RunFolder, reporter: Reporter) -> None:
    """Look, and leave faults, counts and report in the run folder. Raises `UnmetError` when `strict` and there is a
    fault."""
    source = open_data(dataset_in(config.data), config.instruction, config.names)
    faults = list(source.faults)
    if config.decode:
        for index in reporter.track(range(len(source)), "inspect"):
            faults += faults_inside(source, index)
    tell(faults, reporter, most=None)
    counts = counted(source, faults)
    reporter.table("inspected", counts)
    run.write_json("faults.json", {"faults": [as_json(fault) for fault in faults]})
    run.write_json("metrics.json", {"inspect": counts})
    write_report(run.file("report.html"), report(config, source, faults, counts, reporter))
    if config.strict and faults:
        raise UnmetError(f"{config.data}: {len(faults)} faults; {run.path / 'faults.json'} lists them")


def as_json(fault: Fault) -> dict[str, Any]:
    """A fault as JSON."""
    return {"file": str(fault.file), "what": fault.what, "episodes": list(fault.episodes)}


def counted(source: EpisodeSource, faults: Sequence[Fault]) -> dict[str, Any]:
    """What a dataset holds, faulty episodes left out."""
    bad = set(named(faults))
    good = [meta for meta in source.meta if meta.name not in bad]
    verdicts = Counter(meta.success for meta in good)
    height, width = source.picture_size(0)
    return {
        "episodes": len(good),
        "frames": sum(meta.length for meta in good),
        "views": list(source.views),
        "pictures": f"{height}x{width}",
        "fps": source.fps,
        "instructions": len({meta.instruction for meta in good}),
        "annotated": sum(bool(meta.steps) for meta in good),
        "successes": verdicts[True],
        "failures": verdicts[False],
        "faults": len(faults),
        "faulty_episodes": len(bad),
    }


def report(
    config: InspectCommand, source: EpisodeSource, faults: Sequence[Fault], counts: dict[str, Any], reporter: Reporter
) -> Report:
    """The page: the faults, and how some of the episodes look."""
    bad = set(named(faults))
    sound = [row for row, meta in enumerate(source.meta) if meta.name not in bad]
    return Report(
        title="Inspected dataset",
        subtitle=f"{config.data}: {counts['episodes']} sound episodes, {counts['faulty_episodes']} with a fault",
        panels=tuple(islice(shown(source, sound, reporter), config.shown)),
        tables=tables(faults, config.data),
        details=counts,
    )


def shown(source: EpisodeSource, rows: Sequence[int], reporter: Reporter) -> Iterator[Panel]:
    """Panels of episodes; one that nobody looked inside, and that cannot be read, is passed over and told."""
    for row in rows:
        try:
            yield panel(source, row)
        except DataError as error:
            reporter.note(f"not shown: {error}")


def tables(faults: Sequence[Fault], root: Path) -> tuple[Table, ...]:
    """The faults, by episode; nothing where there are none. Files are told as seen from `root`."""
    rows = tuple(
        (", ".join(fault.episodes) or "-", str(fault.file).removeprefix(f"{root}/"), fault.what) for fault in faults
    )
    return (Table(title="Faults", head=("episodes", "file", "what is wrong"), rows=rows),) if rows else ()


COMMAND = Command(schema=InspectCommand, start=start)
