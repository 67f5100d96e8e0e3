"""Distillation of a slow VLM judge into a fast student: python benchmarks/distillation.py

The judge is a small Qwen3-VL that writes its answers. It is trained here on recorded episodes to estimate progress,
because no released weights are available. It then labels new episodes, a `ProgressNet` is trained on these labels only,
and both are evaluated on other episodes. Each phase is a command with its own run folder; interrupted runs are resumed.
Writes docs/results/distillation.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import tiny_vlm
from cli_process import run_once

from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.judges.factory import open_judge
from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.local import chat_messages
from embodied_rm.models.judges.questions import ProgressQuestion
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.models.scoring import views_at
from embodied_rm.types import Episode

TASK, VIEW, IMAGE_SIZE = "lift_cube", "front", 64
RESULTS_PAGE = Path("docs/results/distillation.md")
DATA_SPLITS = {"train": (60, 60, 0), "labeled": (60, 60, 500), "unseen": (20, 20, 900)}
"""Successes, failures and seed of the judge's training data, of the data it labels, and of the test data."""
TARGETS = {"voc": 0.95, "speed": 100.0}
NUM_STEPS, BATCH_SIZE = 2000, 24  # of the training of the judge
NUM_ENVS = 64
"""Batch size of the timing."""


def record(out: Path, split: str) -> Path:
    """Record the episodes of a split with one view."""
    successes, failures, seed = DATA_SPLITS[split]
    env_settings = [f"env.views=[{VIEW}]", f"env.image_size={IMAGE_SIZE}"]
    settings = [f"num_successes={successes}", f"num_failures={failures}", f"seed={seed}"]
    return run_once(out / split, ["collect", f"tasks=[{TASK}]", *settings, *env_settings])


def draw_conversation(episodes: Sequence[Episode], rng: np.random.Generator, easy: bool) -> tiny_vlm.Conversation:
    """Return the judge's question about a random frame of an episode and the answer, rounded to 5 %; none is easier."""
    episode = episodes[int(rng.integers(len(episodes)))]
    frame = int(rng.integers(1, len(episode)))
    assert episode.progress is not None
    (query,) = ProgressQuestion().build_queries(episode_at(episode, frame))
    return chat_messages(query), f"<progress>{round(20 * float(episode.progress[frame])) * 5}%</progress>"


def episode_at(episode: Episode, frame: int) -> EpisodeContext:
    """Return the context of the judge at a frame of an episode."""
    views_at_frames = [MultiViewFrame(episode.views[VIEW][t][None], np.ones(1, bool)) for t in (0, frame)]
    first, current = views_at_frames
    return EpisodeContext(
        instruction=episode.instruction,
        view_names=(VIEW,),
        history=FrameHistory(capacity=1),
        first=first,
        previous=first,
        current=current,
    )


def frames_per_second(model: RewardModel, episodes: Sequence[Episode], num_frames: int) -> float:
    """Return the frames per second of a model with `NUM_ENVS` environments."""
    row_episodes = [episodes[i % len(episodes)] for i in range(NUM_ENVS)]
    state = model.reset(views_at(row_episodes, 0), [episode.instruction for episode in row_episodes])
    times = []
    for t in range(1, num_frames + 1):
        views = views_at(row_episodes, min(t, min(map(len, row_episodes)) - 1))
        start = time.perf_counter()
        _, state = model.step(state, views)
        times.append(time.perf_counter() - start)
    return NUM_ENVS / median(times)


def read_metrics(folder: Path) -> dict[str, float]:
    """Return the metrics of `evaluate`."""
    metrics: dict[str, float] = json.loads((folder / "metrics.json").read_text())["reward_model"]
    return metrics


def main() -> None:
    """Run the missing phases and write the results page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/distillation"), help="folder of the runs")
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="training steps of the judge")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    out: Path = args.out
    data = {split: record(out, split) for split in DATA_SPLITS}
    train_episodes = list(open_dataset(data["train"] / "dataset"))
    judge = tiny_vlm.train_small_judge(
        out / "judge", partial(draw_conversation, train_episodes), args.steps, BATCH_SIZE
    )
    judge_args = ["judge=question", f"judge.folder={judge}", "judge.batch_size=16"]
    output_args = ["videos=false", "plots=false", "frame_stride=2"]
    labels = run_once(out / "labels", ["score", f"data={data['labeled']}", *judge_args, *output_args])
    train_args = [
        "train",
        f"data={data['labeled']}",
        "label_schemes=[distilled]",
        f"scores={labels}",
        "augment.shift=0.06",
    ]
    student = run_once(out / "student", train_args)
    exported = run_once(out / "fast", ["export", f"checkpoint={student}"])
    judge_metrics = read_metrics(run_once(out / "of_judge", ["evaluate", f"data={data['unseen']}", *judge_args]))
    student_metrics = read_metrics(
        run_once(out / "of_student", ["evaluate", f"data={data['unseen']}", f"checkpoint={exported}"])
    )
    episodes = list(open_dataset(data["unseen"] / "dataset"))
    judge_model = open_judge(JudgeConfig(type="question", folder=judge, batch_size=16))
    student_model = load_progress_net(exported / "checkpoint")
    speeds = {
        "judge": frames_per_second(judge_model, episodes, 3),
        "student": frames_per_second(student_model, episodes, 100),
    }
    score_metrics = json.loads((labels / "metrics.json").read_text())["score"]
    RESULTS_PAGE.write_text(results_page(judge_metrics, student_metrics, speeds, score_metrics))
    logging.info(RESULTS_PAGE.read_text())


def results_page(
    judge_metrics: dict[str, float],
    student_metrics: dict[str, float],
    speeds: dict[str, float],
    score_metrics: dict[str, float],
) -> str:
    """Return the results as Markdown."""
    labels = {"voc": "VOC", "voc_reversed": "VOC, played backwards", "mae": "progress MAE"}
    rows = [f"| {label} | {judge_metrics[name]:.3f} | {student_metrics[name]:.3f} |" for name, label in labels.items()]
    rows += [f"| frames per second, {NUM_ENVS} environments | {speeds['judge']:.1f} | {speeds['student']:.0f} |"]
    voc_ratio, speedup = student_metrics["voc"] / judge_metrics["voc"], speeds["student"] / speeds["judge"]
    outcome = "met" if voc_ratio >= TARGETS["voc"] and speedup >= TARGETS["speed"] else "missed"
    return "\n".join(
        [
            "# Distillation of a slow judge into a fast student",
            "",
            "`python benchmarks/distillation.py`: a small Qwen3-VL, trained here to estimate progress in `lift_cube`,",
            f"labeled {score_metrics['episodes']} new episodes (every second frame, "
            f"{score_metrics['invalid']:.0f} left unscored). A `ProgressNet`",
            "was trained on these labels only and runs as ONNX graphs. Both were evaluated on other episodes:",
            "",
            "| | judge | student |",
            "|---|---|---|",
            *rows,
            "",
            f"The student keeps {voc_ratio:.3f} of the judge's VOC (target: {TARGETS['voc']}) at {speedup:.0f} times",
            f"its speed (target: {TARGETS['speed']:.0f}): {outcome}. {describe_machine()}.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
