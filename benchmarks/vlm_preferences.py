"""A small vision-language model compares clips, a policy learns of it: python benchmarks/vlm_preferences.py

The judge is a small Qwen3-VL, trained here on pairs of clips of recorded episodes, because no released weights are
available. It then compares clips of new episodes in both orders (`embodied-rm prefer`). A reward model learns from its
answers alone (`train label_schemes=[compared]`), and a policy from that model's rewards without an environment step
(`offline`). Each phase is a command with its own run folder; interrupted runs are resumed. Writes
docs/results/vlm_preferences.md.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tiny_vlm
from cli_process import run_once
from record_mixed import record_mixed

from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.labels.comparisons import ClipComparison, draw_clip_pairs, read_comparisons
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.clip_comparison import VlmClipJudge
from embodied_rm.models.judges.local import chat_messages
from embodied_rm.score.compare_clips import CompareFn
from embodied_rm.score.ranked_factors import PROGRESS_ALONE, RecordedFacts, ranked_comparer
from embodied_rm.types import Episode

TASK, VIEW, IMAGE_SIZE, CLIP_SHARE = "lift_cube", "front", 64, 0.25
RESULTS_PAGE = Path("docs/results/vlm_preferences.md")
SEEDS = (1, 2, 3)  # of recordings and policies, as in `bench offline`
NUM_STEPS, BATCH_SIZE = 2000, 8  # of the training of the judge
EASY_GAP = 0.6  # smallest difference of progress at the ends of the clips of an easy pair
NUM_PAIRS = 1000  # pairs that it compares per seed
VIEW_ARGS = (f"env.views=[{VIEW}]", f"env.image_size={IMAGE_SIZE}")
REWARD_ARGS = ("rule=raw", "success_reward=0", "rank_progress=true")


class QueryRecorder:
    """A `ChatModel` that keeps the questions it is asked."""

    def __init__(self) -> None:
        self.queries: list[Query] = []

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Keep the questions, and answer with the first choice."""
        self.queries += queries
        return [Answer(text="A") for _ in queries]


class ConversationDrawer:
    """Draws questions about pairs of clips of episodes, with the letter of the clip with more recorded progress."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._episodes = {episode.name: episode for episode in episodes}
        self._goals = {episode.name: goal_of(episode) for episode in episodes}
        self._compare = progress_comparer(episodes)

    def __call__(self, rng: np.random.Generator, easy: bool) -> tiny_vlm.Conversation:
        pair = self._draw_pair(rng)
        while easy and self._progress_gap(pair) < EASY_GAP:
            pair = self._draw_pair(rng)
        first, second = (self._episodes[clip.episode] for clip in (pair.first, pair.second))
        clips = [
            {VIEW: episode.views[VIEW][clip.frames(len(episode))]}
            for episode, clip in ((first, pair.first), (second, pair.second))
        ]
        recorder = QueryRecorder()
        VlmClipJudge(recorder).compare([(clips[0], clips[1])], [first.instruction])
        letter = {"first": "A", "second": "B", "neither": "C"}[self._compare([pair])[0]]
        return chat_messages(recorder.queries[0]), letter

    def _draw_pair(self, rng: np.random.Generator) -> ClipComparison:
        return draw_clip_pairs(self._goals, 1, CLIP_SHARE, int(rng.integers(2**31)))[0]

    def _progress_gap(self, pair: ClipComparison) -> float:
        ends = []
        for clip in (pair.first, pair.second):
            episode = self._episodes[clip.episode]
            assert episode.progress is not None
            ends.append(float(episode.progress[clip.frames(len(episode))][-1]))
        return abs(ends[0] - ends[1])


def progress_comparer(episodes: Sequence[Episode]) -> CompareFn:
    """Return the function that compares pairs of clips by the recorded progress."""
    recorded = {episode.name: RecordedFacts(length=len(episode), progress=episode.progress) for episode in episodes}
    return ranked_comparer(recorded, PROGRESS_ALONE, 0.0, 0)


def measure(folder: Path, judge: Path, seed: int) -> dict[str, Any]:
    """Compare, train and learn on the recordings of a seed; return the counts and success rates."""
    data = record_mixed(folder, TASK, seed, VIEW_ARGS)
    asked = ["judge=question", f"judge.folder={judge}", "judge.batch_size=16"]
    compared = [f"data={data}", f"num_pairs={NUM_PAIRS}", f"clip_share={CLIP_SHARE}", f"seed={seed}"]
    pairs = run_once(folder / "prefer", ["prefer", *compared, *asked])
    learner = [f"task={TASK}", f"data={data}", f"seed={seed}"]
    trained = ["train", f"data={data}", "label_schemes=[compared]", f"comparisons={pairs}", "fusion=forward"]
    model = run_once(folder / "model", [*trained, "steps=600", f"seed={seed}"])
    policy = run_once(folder / "iql", ["offline", *learner, f"checkpoint={model}", *REWARD_ARGS])
    clone = run_once(
        folder / "bc", ["clone", *learner, "num_demonstrations=60", "include_failures=true", "eval_episodes=200"]
    )
    episodes = list(open_dataset(data / "dataset"))
    answers = read_comparisons(pairs)
    decided = [comparison for comparison in answers if comparison.is_decided]
    truth = progress_comparer(episodes)(decided)
    return {
        "counts": Counter(comparison.answer for comparison in answers),
        "right": float(np.mean([c.answer == t for c, t in zip(decided, truth, strict=True)])),
        "iql": read_rate(policy, "offline_success"),
        "bc": read_rate(clone, "cloned_success"),
    }


def read_rate(folder: Path, name: str) -> float:
    """Return a success rate of the metrics of a run."""
    return float(json.loads((folder / "metrics.json").read_text())[name]["rate"])


def results_page(results: Sequence[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    rows = [
        f"| {seed} | {result['counts']['contradiction'] / NUM_PAIRS:.3f} "
        f"| {result['counts']['neither'] / NUM_PAIRS:.3f} | {result['right']:.3f} "
        f"| {result['bc']:.3f} | {result['iql']:.3f} |"
        for seed, result in zip(SEEDS, results, strict=True)
    ]
    return "\n".join(
        [
            "# A small vision-language model compares clips",
            "",
            f"`python benchmarks/vlm_preferences.py`: a small Qwen3-VL, trained here on pairs of clips of `{TASK}`,",
            f"compares {NUM_PAIRS} pairs of new recordings in both orders. It contradicts itself if the answer depends",
            "on the order. Decided pairs are right if the recorded progress agrees. `iql` learns from a reward model",
            "that saw nothing but the decided pairs; `bc` clones all recordings. Success of 200 episodes.",
            "",
            "| seed | contradictions | no difference | decided pairs that are right | `bc` | `iql` |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"{describe_machine()}.",
            "",
        ]
    )


def main() -> None:
    """Run the missing phases and write the results page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/vlm_preferences"), help="folder of the runs")
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="training steps of the judge")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    out: Path = arguments.out
    counts = ["num_successes=60", "num_failures=60", "seed=0"]
    train_data = run_once(out / "train", ["collect", f"tasks=[{TASK}]", *VIEW_ARGS, *counts])
    episodes = list(open_dataset(train_data / "dataset"))
    judge = tiny_vlm.train_small_judge(out / "judge", ConversationDrawer(episodes), arguments.steps, BATCH_SIZE)
    results = [measure(out / f"seed_{seed}", judge, seed) for seed in SEEDS]
    RESULTS_PAGE.write_text(results_page(results))
    logging.info(RESULTS_PAGE.read_text())


if __name__ == "__main__":
    main()
