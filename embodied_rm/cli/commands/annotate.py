"""`embodied-rm annotate`: annotate subtasks and success of episodes on a local web page."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from embodied_rm.annotate.annotation_server import AnnotationServer
from embodied_rm.annotate.proposals import SubtaskProposer, change_point_proposer, progress_proposer
from embodied_rm.annotate.session import AnnotationSession
from embodied_rm.command import Command
from embodied_rm.data.annotation import Annotation
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.load_dataset import load_dataset
from embodied_rm.data.open_dataset import open_annotations
from embodied_rm.errors import UserError
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.run_lock import lock_folder
from embodied_rm.types import Array, Episode

MAX_SCORED_FRAMES = 64  # frames of an episode that a judge scores; its progress is interpolated between them


@dataclass(frozen=True, kw_only=True)
class AnnotateCommand:
    """Config of `annotate`."""

    data: Path
    instruction: str | None = None
    subtasks: tuple[str, ...] = ()
    port: int = 0
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    features: FeatureMap = field(default_factory=FeatureMap)


def make_proposer(config: AnnotateCommand) -> SubtaskProposer:
    """Return the proposer of subtasks: by changes in the images, or by a judge's progress, which needs names."""
    if config.judge.type is None:
        return change_point_proposer(config.subtasks)
    if not config.subtasks:
        raise UserError("a judge predicts progress and not the subtasks: name them, subtasks=[...]")
    from embodied_rm.models.judges.factory import open_judge  # by transformers, which is optional
    from embodied_rm.models.scoring import score_episodes

    judge = open_judge(config.judge)

    def progress(episode: Episode) -> Array:
        frame_indices = np.unique(np.linspace(0, len(episode) - 1, MAX_SCORED_FRAMES).round().astype(np.int64))
        sampled_views = {name: frames[frame_indices] for name, frames in episode.views.items()}
        (prediction,) = score_episodes(
            judge, [Episode(name=episode.name, views=sampled_views, instruction=episode.instruction, fps=episode.fps)]
        )
        return np.interp(np.arange(len(episode)), frame_indices, prediction.progress).astype(np.float32)

    return progress_proposer(progress, config.subtasks)


def main(config: AnnotateCommand, run: RunFolder, reporter: Reporter) -> None:
    """Serve the page until Ctrl-C, then print what was saved. One process annotates a dataset at a time."""
    path = resolve_dataset(config.data).resolve()
    with lock_folder(path if path.is_dir() else path.parent, "dataset", "annotate it on the page of that process"):
        serve_page(config, reporter)


def serve_page(config: AnnotateCommand, reporter: Reporter) -> None:
    """Serve the page of a dataset whose lock is held."""
    source = load_dataset(config.data, reporter, config.instruction, config.features)
    store = open_annotations(resolve_dataset(config.data), source)
    if repaired := store.repair():
        reporter.log(f"completed an interrupted save: {', '.join(repaired)}")
    session = AnnotationSession(source, store, make_proposer(config), config.subtasks)
    with AnnotationServer(session, config.port) as server:
        num_annotated = sum(bool(meta.subtasks) for meta in source.meta)
        reporter.table("annotate", {"episodes": len(source), "with subtasks": num_annotated, "views": source.views})
        reporter.log(f"open {server.url} in a browser; Ctrl-C ends")
        server.serve_until_interrupt()
        session.close()
    saved_episodes = {
        source.meta[index].name: describe_annotation(annotation)
        for index, annotation in sorted(session.saved_annotations.items())
    }
    reporter.table("saved", saved_episodes or {"episodes": 0})


def describe_annotation(annotation: Annotation) -> str:
    """Summarize an annotation."""
    outcome = {True: "success", False: "failure", None: "success unknown"}[annotation.success]
    return f"{len(annotation.subtasks)} subtasks, {outcome}"


COMMAND = Command(schema=AnnotateCommand, main=main, writes_run_folder=False)
