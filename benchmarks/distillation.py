"""What is left of a slow judge in a fast student: python benchmarks/distillation.py

The judge is a vision-language model that writes its answers: a small Qwen3-VL, taught here on recorded episodes to say
how much of a task is done, since no released weights can be had here. It then labels episodes that it never saw; a
`ProgressNet` learns what it said and nothing else; both are judged on others again. Each stage is a command in a folder
of its own: interrupted, the same line goes on. Writes docs/results/distillation.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import tiny_vlm
import torch

from embodied_rm.cli.benchmarks import machine
from embodied_rm.cli.main import main as command
from embodied_rm.data.catalog import open_data
from embodied_rm.models.base import RewardModel
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.fold import views_at
from embodied_rm.models.judges.catalog import open_judge
from embodied_rm.models.judges.config import JudgeConfig
from embodied_rm.models.judges.film import Film, Picture
from embodied_rm.models.judges.local import conversation
from embodied_rm.models.judges.memory import Moment
from embodied_rm.models.judges.questions import Share
from embodied_rm.types import Episode

TASK, VIEW, SIZE = "lift_cube", "front", 64
PAGE = Path("docs/results/distillation.md")
SPLITS = {"taught": (60, 60, 0), "labelled": (60, 60, 500), "unseen": (20, 20, 900)}
"""Successes, failures and seed of what the judge learns from, what it labels, and what both are judged on."""
ASKED = {"voc": 0.95, "speed": 100.0}
UPDATES, BATCH, RATE = 2000, 24, 2e-3
TOGETHER = 64
"""Environments that are judged side by side for the timing."""


def record(out: Path, split: str) -> Path:
    """Episodes of one view."""
    successes, failures, seed = SPLITS[split]
    world = [f"world.views=[{VIEW}]", f"world.image_size={SIZE}"]
    sizes = [f"successes={successes}", f"failures={failures}", f"seed={seed}"]
    return once(out / split, ["collect", f"tasks=[{TASK}]", *sizes, *world])


def once(folder: Path, words: Sequence[str]) -> Path:
    """Run a command whose run folder this is, unless it is done; one that was interrupted goes on."""
    if not (folder / "metrics.json").exists():
        again = ["resume=true"] if (folder / "config.json").exists() else []
        if code := command([*words, f"out={folder}", *again]):
            raise SystemExit(code)
    return folder


def taught_judge(folder: Path, data: Path, updates: int) -> Path:
    """A Qwen3-VL that has learned to answer our question about progress, saved as released ones are."""
    if (folder / "config.json").exists():
        return folder
    torch.manual_seed(0)
    text = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    eye = {"hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "depth": 2, "out_hidden_size": 128}
    model, processor = tiny_vlm.qwen3(text={**text, "num_key_value_heads": 2, "head_dim": 32}, eye=eye, patch=8)
    episodes = list(open_data(data / "dataset"))
    rng, rows = np.random.default_rng(0), []
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=updates, pct_start=0.05)
    for update in range(updates):
        turns = [turn(episodes[rng.integers(len(episodes))], rng) for _ in range(BATCH)]
        loss = tiny_vlm.loss(model, processor, turns)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        rows.append(loss.item())
        if update % 100 == 99:
            logging.info("judge: update %d of %d, loss %.3f", update + 1, updates, np.mean(rows[-100:]))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def turn(episode: Episode, rng: np.random.Generator) -> tuple[list[dict[str, object]], str]:
    """A question about a frame of an episode as the judge will be asked it, and the answer, in steps of 5 %."""
    now = int(rng.integers(1, len(episode)))
    assert episode.progress is not None
    (query,) = Share().ask(moment(episode, now))
    return conversation(query), f"<progress>{round(20 * float(episode.progress[now])) * 5}%</progress>"


def moment(episode: Episode, now: int) -> Moment:
    """The episode at a frame."""
    shown = [Picture(episode.views[VIEW][t][None], np.ones(1, bool)) for t in (0, now)]
    first, present = shown
    return Moment(
        instruction=episode.instruction, names=(VIEW,), film=Film(room=1), first=first, previous=first, now=present
    )


def frames_per_second(model: RewardModel, episodes: Sequence[Episode], moments: int) -> float:
    """Frames that a model judges in a second, so many environments side by side."""
    rows = [episodes[i % len(episodes)] for i in range(TOGETHER)]
    memory = model.begin(views_at(rows, 0), [episode.instruction for episode in rows])
    times = []
    for t in range(1, moments + 1):
        views = views_at(rows, min(t, min(map(len, rows)) - 1))
        started = time.perf_counter()
        _, memory = model.advance(memory, views)
        times.append(time.perf_counter() - started)
    return TOGETHER / median(times)


def measured(folder: Path) -> dict[str, float]:
    """What `evaluate` found."""
    numbers: dict[str, float] = json.loads((folder / "metrics.json").read_text())["reward_model"]
    return numbers


def main() -> None:
    """Run what is not done, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/distillation"), help="where the stages lie")
    parser.add_argument("--updates", type=int, default=UPDATES, help="of the judge's training")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    out: Path = asked.out
    data = {split: record(out, split) for split in SPLITS}
    judge = taught_judge(out / "judge", data["taught"], asked.updates)
    words = ["judge=question", f"judge.folder={judge}", "judge.batch=16"]
    plain = ["videos=false", "plots=false", "every=2"]
    labels = once(out / "labels", ["score", f"data={data['labelled']}", *words, *plain])
    learn = ["train", f"data={data['labelled']}", "labels=[judged]", f"judged={labels}", "augment.shift=0.06"]
    student = once(out / "student", learn)
    fast = once(out / "fast", ["export", f"checkpoint={student}"])
    of_judge = measured(once(out / "of_judge", ["evaluate", f"data={data['unseen']}", *words]))
    of_student = measured(once(out / "of_student", ["evaluate", f"data={data['unseen']}", f"checkpoint={fast}"]))
    shown = list(open_data(data["unseen"] / "dataset"))
    slow = open_judge(JudgeConfig(layout="question", folder=judge, batch=16))
    quick = load_progress_net(fast / "checkpoint")
    speeds = {"judge": frames_per_second(slow, shown, 3), "student": frames_per_second(quick, shown, 100)}
    scored = json.loads((labels / "metrics.json").read_text())["score"]
    PAGE.write_text(page(of_judge, of_student, speeds, scored))
    logging.info(PAGE.read_text())


def page(
    of_judge: dict[str, float], of_student: dict[str, float], speeds: dict[str, float], scored: dict[str, float]
) -> str:
    """The results as Markdown."""
    names = {"voc": "order, forward", "voc_reversed": "the same, played backwards", "mae": "error of progress"}
    rows = [f"| {what} | {of_judge[name]:.3f} | {of_student[name]:.3f} |" for name, what in names.items()]
    rows += [f"| frames a second, {TOGETHER} environments | {speeds['judge']:.1f} | {speeds['student']:.0f} |"]
    kept, times = of_student["voc"] / of_judge["voc"], speeds["student"] / speeds["judge"]
    met = "met" if kept >= ASKED["voc"] and times >= ASKED["speed"] else "missed"
    return "\n".join(
        [
            "# A slow judge and its fast student",
            "",
            "`python benchmarks/distillation.py`: a small Qwen3-VL, taught here to write how much of `lift_cube` is",
            f"done, labelled {scored['episodes']} episodes that it never saw (every second frame, "
            f"{scored['invalid']:.0f} left unscored); a `ProgressNet`",
            "learned those labels and nothing else, and runs as ONNX graphs. Both on other episodes again:",
            "",
            "| | judge | student |",
            "|---|---|---|",
            *rows,
            "",
            f"The student keeps {kept:.3f} of the judge's order (asked: {ASKED['voc']}) at {times:.0f} times its speed",
            f"(asked: {ASKED['speed']:.0f}): {met}. {machine()}.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
