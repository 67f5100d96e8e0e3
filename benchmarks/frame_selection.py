"""Frames by relevance and novelty against evenly spaced ones: python benchmarks/frame_selection.py

Three of the 200 frames of a video decide (`event_videos.py`), and a judge sees eight of them. The judge is a small
Qwen3-VL, trained here because no released weights are available. It is taught the rubric question on random frames,
which always show the event if there is one: it can judge what it sees, and knows neither selection. Then the same judge
is asked about other videos, by even and by chosen frames, once and by three readers. Finished phases are not repeated.
Writes docs/results/frame_selection.md, and every measurement as a line of frame_selection.jsonl.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tiny_vlm
from event_videos import (
    EVENT_LENGTH,
    EVENT_STARTS,
    IMAGE_SIZE,
    OUTCOMES,
    TASK,
    VIDEO_LENGTH,
    VIEW,
    Event,
    Scenes,
    draw_event,
    record_scenes,
)

from embodied_rm.atomic_file import write_atomic
from embodied_rm.experiments.results_cache import ResultsCache, open_results_cache
from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.metrics.classification import roc_auc
from embodied_rm.metrics.progress import spearman
from embodied_rm.models.judges.frame_encoders import open_frame_encoder
from embodied_rm.models.judges.frame_history import MultiViewFrame, empty_history
from embodied_rm.models.judges.frame_selection import (
    EVEN,
    RELEVANT,
    SELECTIONS,
    EvenFrames,
    FrameSelection,
    RelevantFrames,
)
from embodied_rm.models.judges.judge_config import JudgeConfig, judge_digest
from embodied_rm.models.judges.judge_state import EpisodeContext, JudgeState
from embodied_rm.models.judges.local import LocalChat, chat_messages
from embodied_rm.models.judges.questions import MAX_HISTORY_FRAMES, RubricQuestion
from embodied_rm.models.judges.readings import READERS, ThreeReadings
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.types import Frames, IntArray, Views

RESULTS_PAGE = Path("docs/results/frame_selection.md")
SPLITS = {"teach": (160, 0), "held_out": (60, 900)}  # number of scenes and seed
NUM_STEPS, BATCH_SIZE = 1200, 8  # of the training of the judge
DONE, UNDONE = "5", "1"  # grades of a video without and with an event
MOVING_FRAMES = 40  # frames until the cube is held
MOVING_SHARE = 0.5  # share of the random frames that are from among them
MIN_FRAMES = 3  # of a question of the training; an easy one has no more
TARGET_GAIN = 0.05  # of success AUC
VIDEO_SETTINGS = (TASK, VIEW, IMAGE_SIZE, VIDEO_LENGTH, EVENT_LENGTH, OUTCOMES, EVENT_STARTS)
NUM_RESAMPLES = 2000  # bootstrap samples of the intervals


class RandomFrames(FrameSelection):
    """The current frame, one of the event and one from before it, and random ones: any number of frames.

    A judge learns to see from questions with few frames, where each of them matters more.
    """

    def __init__(self, event: Event | None, rng: np.random.Generator, easy: bool) -> None:
        self.event, self.rng, self.easy = event, rng, easy

    def select(self, context: EpisodeContext, max_frames: int) -> list[MultiViewFrame]:
        frames = [*context.history.frames, context.current]
        last = len(frames) - 1
        event_times = [] if self.event is None else [int(self.rng.choice(self.event.times))]
        chosen = {int(self.rng.integers(MOVING_FRAMES, EVENT_STARTS[0])), last, *event_times}
        count = int(self.rng.integers(MIN_FRAMES, (MIN_FRAMES if self.easy else max_frames) + 1))
        while len(chosen) < count:
            chosen.add(int(self.rng.integers(MOVING_FRAMES if self.rng.random() < MOVING_SHARE else last)))
        return [frames[time] for time in sorted(chosen)]


def context_before_last(video: Frames, instruction: str) -> EpisodeContext:
    """Return the context of a video [T, H, W, 3] at the frame before the last, as if every frame had been scored."""
    frames = tuple(MultiViewFrame(image[None], np.ones(1, bool)) for image in video[:-1])
    history = empty_history(RubricQuestion.history_capacity, frames[0])
    assert len(video) <= history.capacity, "every frame is kept"
    return EpisodeContext(
        instruction=instruction,
        view_names=(VIEW,),
        history=replace(history, frames=frames[:-1], length=len(frames) - 1),
        first=frames[0],
        previous=frames[-1],
        previous_time=len(frames) - 1,
        current=frames[-1],
    )


def context_at_end(video: Frames, instruction: str) -> EpisodeContext:
    """Return the context of a video at its last frame."""
    return context_before_last(video, instruction).advance(MultiViewFrame(video[-1][None], np.ones(1, bool)))


def draw_conversation(scenes: Scenes, rng: np.random.Generator, easy: bool) -> tiny_vlm.Conversation:
    """Return the question of a random reader about random frames of a random video, and its grade."""
    scene = int(rng.integers(len(scenes)))
    event = draw_event(rng) if rng.random() < 0.5 else None
    context = context_at_end(scenes.video(scene, event), str(scenes.instructions[scene]))
    (query,) = RubricQuestion(use_logprobs=True, selection=RandomFrames(event, rng, easy)).build_queries(context)
    reader = str(rng.choice(["", *READERS]))
    query = replace(query, system=f"{query.system} {reader}".strip())
    return chat_messages(query), DONE if event is None else UNDONE


def held_out_videos(scenes: Scenes) -> list[tuple[int, Event | None]]:
    """Return the scene and the event of each video: every scene without and with one, each outcome as often."""
    rng = np.random.default_rng(0)
    events = [draw_event(rng)._replace(outcome=scene % len(OUTCOMES)) for scene in range(len(scenes))]
    return [(scene, event) for scene, drawn in enumerate(events) for event in (None, drawn)]


def choose_frames(path: Path, selection: FrameSelection, scenes: Scenes) -> list[list[int]]:
    """Return the times of the frames that a selection shows of every held-out video, once per file."""
    if not path.exists():
        chosen = []
        for scene, event in held_out_videos(scenes):
            context = context_at_end(scenes.video(scene, event), str(scenes.instructions[scene]))
            ids = [id(frame) for frame in selection.select(context, MAX_HISTORY_FRAMES)]
            chosen.append([time for time, frame in context.kept_frames().items() if id(frame) in ids])
            if len(chosen) % 10 == 0:
                logging.info("%s: frames of %d of %d videos chosen", path.stem, len(chosen), 2 * len(scenes))
        write_atomic(path, json.dumps(chosen))
    times: list[list[int]] = json.loads(path.read_text())
    return times


class FixedFrames(FrameSelection):
    """Frames at known times."""

    def __init__(self, times: Sequence[int]) -> None:
        self.times = times

    def select(self, context: EpisodeContext, max_frames: int) -> list[MultiViewFrame]:
        frame_by_time = context.kept_frames()
        return [frame_by_time[time] for time in self.times]


def ask_about_videos(folder: Path, chosen: Sequence[Sequence[int]], scenes: Scenes) -> dict[str, list[float]]:
    """Ask the judge about the last frame of every held-out video, once and by three readers.

    Returns:
        Per video: whether the event is shown, the probability of success, the potential of the three readers and their
        disagreement.
    """
    chat = LocalChat(folder)
    results: dict[str, list[float]] = {"has_event": [], "success": [], "potential": [], "uncertainty": []}
    for (scene, event), times in zip(held_out_videos(scenes), chosen, strict=True):
        video, question = scenes.video(scene, event), RubricQuestion(use_logprobs=True, selection=FixedFrames(times))
        state = JudgeState((context_before_last(video, str(scenes.instructions[scene])),))
        views = Views(names=(VIEW,), frames=video[None, None, -1])
        judges = VlmJudge(chat, question), VlmJudge(chat, ThreeReadings(question))
        once, thrice = (judge.step(state, views)[0] for judge in judges)
        shows_event = event is not None and not set(times).isdisjoint(event.times)
        values = float(shows_event), float(once.success[0]), float(thrice.progress[0]), float(thrice.uncertainty[0])
        for name, value in zip(results, values, strict=True):
            results[name].append(round(value, 6))
    return results


def measure(out: Path, cache: ResultsCache, judge: Path, scenes: Scenes) -> dict[str, Mapping[str, Any]]:
    """Return selection -> answers about the held-out videos, from the cache or by asking the judge."""
    results = {}
    for name in SELECTIONS:
        chosen = choose_frames(out / f"{name}.json", open_selection(name), scenes)
        config = JudgeConfig(type="question", folder=judge, question="rubric", answer_mode="logprobs", frames=name)
        settings = {"judge": judge_digest(config), "videos": VIDEO_SETTINGS, "held_out": SPLITS["held_out"]}
        ask = partial(ask_about_videos, judge, chosen, scenes)
        results[name] = cache.get_or_measure(name, settings, out / name, ask)
        logging.info("%s: success AUC %.3f", name, success_auc(results[name], np.arange(len(scenes))))
    return results


def open_selection(name: str) -> FrameSelection:
    """Return the selection of a value of `judge.frames`."""
    return RelevantFrames(open_frame_encoder(JudgeConfig.frame_encoder)) if name == RELEVANT else EvenFrames()


def with_interval(statistic: Callable[[IntArray], float], num_scenes: int) -> list[float]:
    """Return a statistic of the scenes, and the ends of its 95 % interval over resampled scenes."""
    rng = np.random.default_rng(0)
    samples = [statistic(rng.integers(num_scenes, size=num_scenes)) for _ in range(NUM_RESAMPLES)]
    return [statistic(np.arange(num_scenes)), *np.nanquantile(samples, [0.025, 0.975])]


def success_auc(result: Mapping[str, Any], rows: IntArray) -> float:
    """Return the success AUC on the videos of some scenes: those without an event are done."""
    success = np.array(result["success"]).reshape(-1, 2)[rows]
    return roc_auc(success.ravel(), np.tile([True, False], len(rows)))


def uncertainty_correlation(result: Mapping[str, Any], rows: IntArray) -> float:
    """Return the Spearman correlation of the readers' disagreement with the error of their potential."""
    potential, uncertainty = (np.array(result[name]).reshape(-1, 2)[rows] for name in ("potential", "uncertainty"))
    return spearman(uncertainty.ravel(), np.abs(potential - np.array([1, 0])).ravel())


def results_page(results: Mapping[str, Mapping[str, Any]], num_steps: int) -> str:
    """Return the results as Markdown."""
    even, relevant = results[EVEN], results[RELEVANT]
    num_scenes = len(even["success"]) // 2
    auc = {name: with_interval(partial(success_auc, results[name]), num_scenes) for name in results}
    gain = with_interval(lambda rows: success_auc(relevant, rows) - success_auc(even, rows), num_scenes)
    correlation = {name: with_interval(partial(uncertainty_correlation, results[name]), num_scenes) for name in results}
    rows = [
        f"| `judge.frames={name}` | {sum(results[name]['has_event']) / num_scenes:.2f} | {show(auc[name])} "
        f"| {show(correlation[name])} |"
        for name in results
    ]
    outcome = "met" if gain[0] >= TARGET_GAIN else "missed"
    return "\n".join(
        [
            "# Frames by relevance and novelty",
            "",
            f"`python benchmarks/frame_selection.py`: {2 * num_scenes} held-out videos of `{TASK}`, of {VIDEO_LENGTH}",
            f"frames each, in which the cube is lifted and held. In half of them, {EVENT_LENGTH} frames show that it",
            "is not: it is dropped, put back, or the other cube is held. The task is done exactly without an event.",
            f"A judge sees {MAX_HISTORY_FRAMES} frames of the wrist camera. It is a small Qwen3-VL, taught here on",
            f"other videos ({num_steps} steps of {BATCH_SIZE} questions), with random frames that always show the",
            "event. So it can judge what it sees and knows neither selection: the same weights answer about both.",
            "",
            "| frames | events included | success AUC | three readers: correlation of uncertainty and error |",
            "|---|---|---|---|",
            *rows,
            f"| difference | | {show(gain)} | |",
            "",
            f"Brackets hold 95 % intervals over {num_scenes} scenes. Target of the difference of success AUC: "
            f"{TARGET_GAIN}: {outcome}.",
            "The correlation is Spearman's. The uncertainty is half the range of the three readers' potentials",
            "(`judge.readings=3`), and the error that of their median. A reader knows nothing of what it does not",
            "see, so the uncertainty says little where the event is missed.",
            "",
            f"{describe_machine()}.",
            "",
        ]
    )


def show(interval: Sequence[float]) -> str:
    """Return a value with its interval."""
    value, low, high = interval
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Run the missing phases and write the results page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/frame_selection"), help="folder of videos and judge")
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="training steps of the judge")
    parser.add_argument("--page", type=Path, default=RESULTS_PAGE, help="results page")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    out: Path = args.out
    cache = open_results_cache(args.page)
    scenes = {split: record_scenes(out / f"{split}.npz", *SPLITS[split]) for split in SPLITS}
    draw = partial(draw_conversation, scenes["teach"])
    judge = tiny_vlm.train_small_judge(out / "judge", draw, args.steps, BATCH_SIZE)
    results = measure(out, cache, judge, scenes["held_out"])
    args.page.write_text(results_page(results, args.steps))
    logging.info(args.page.read_text())


if __name__ == "__main__":
    main()
