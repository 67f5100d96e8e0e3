"""Every success of a group once as the demonstration of each other episode: the curves, and what they say."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import product

from embodied_rm.api.clip_output import done_frames
from embodied_rm.api.demonstration_reward_model import DEMONSTRATED
from embodied_rm.client.shaping import DEFAULT_SUCCESS_THRESHOLD
from embodied_rm.errors import DataError
from embodied_rm.experiments.real_evaluation.baselines import BASELINES, BaselineInput
from embodied_rm.experiments.real_evaluation.real_sets import RealSet, stack_views
from embodied_rm.experiments.real_evaluation.video_cases import (
    HALF,
    NEVER_DONE,
    REVERSED,
    WHOLE,
    first_half,
    order_of_last,
    reverse,
    try_again,
    undo,
)
from embodied_rm.labels.true_progress import true_progress
from embodied_rm.metrics import mae
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.frozen_encoder import CachingEncoder, FrozenEncoder
from embodied_rm.models.scoring import score_video
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.run_folder import NullReporter
from embodied_rm.training.in_context.adapt_demonstrations import adapt_demonstrations
from embodied_rm.types import Array, Episode, Frames, RewardOutput, Views

ANOTHER = "another video"
MODEL = "demonstration in context"
ADAPTED = "adapted to the demonstration"
NUM_LAST_FRAMES = 3  # frames whose mean says how a video ends


@dataclass
class PairScores:
    """Results of all pairs of a set; one entry per pair, or per case of a pair."""

    order: dict[str, list[float]] = field(default_factory=dict)  # method -> VOC of each success
    reversed_order: dict[str, list[float]] = field(default_factory=dict)  # of the same videos backward
    undone_order: list[float] = field(default_factory=list)  # of the way back, after the video
    retried_order: list[float] = field(default_factory=list)  # of the video, after its first half and the way back
    error: dict[str, list[float]] = field(default_factory=dict)  # mean absolute error where progress is annotated
    above_failure: dict[str, list[float]] = field(default_factory=dict)
    """1 where a success ends above a failure with the same demonstration, 0.5 at a tie, else 0."""
    done: dict[str, list[float]] = field(default_factory=dict)  # case -> 1 where it is predicted done, else 0
    whole_and_half: list[tuple[float, float]] = field(default_factory=list)  # last success of the video and of its half
    seconds: float = 0.0  # time to encode and score each episode once, s
    video_seconds: float = 0.0  # their length, s


def score_pairs(
    real_set: RealSet, frozen: FrozenEncoder, direction_net: ZeroShotNet | None, other_tasks: Sequence[Episode]
) -> Iterator[PairScores]:
    """Yield the results so far after each demonstration; `other_tasks` are videos of other tasks."""
    scores, encoder = PairScores(), CachingEncoder(frozen)
    untimed = dict(real_set.seconds)
    for group, demonstration in demonstrations(real_set):
        model = DemonstrationModel([demonstration], encoder, direction_net)
        adapted = adapt_demonstrations([demonstration], frozen, NullReporter(), direction_net=direction_net)
        ends: dict[str, list[tuple[bool, float]]] = {}
        for episode in group:
            if episode is not demonstration:
                _score_pair(scores, {MODEL: model, ADAPTED: adapted}, demonstration, episode, ends)
                if episode.name in untimed:
                    scores.seconds += measure_seconds(model, frozen, stack_views(episode, model.views))
                    scores.video_seconds += untimed.pop(episode.name)
        for method, values in ends.items():
            wins, losses = ([end for succeeded, end in values if succeeded is kind] for kind in (True, False))
            won = [float(win > loss) + 0.5 * (win == loss) for win, loss in product(wins, losses)]
            scores.above_failure.setdefault(method, []).extend(won)
        for other in other_tasks:
            if other.instruction != demonstration.instruction:
                output = predict(model, stack_views(other, tuple(other.views)[: len(model.views)]))
                scores.done.setdefault(ANOTHER, []).append(predicts_done(output))
        yield scores


def demonstrations(real_set: RealSet) -> Iterator[tuple[tuple[Episode, ...], Episode]]:
    """Yield each success with its group; an episode whose outcome is unknown is a demonstration too."""
    for group in real_set.groups:
        yield from ((group, episode) for episode in group if episode.success is not False)


def predict(model: DemonstrationModel, frames: Frames) -> RewardOutput:
    """Score frames uint8 [T, V, H, W, 3], views in the order of the demonstration's."""
    return score_video(model, DEMONSTRATED, [Views(names=model.views, frames=frames)])


def measure_seconds(model: DemonstrationModel, encoder: FrozenEncoder, frames: Frames) -> float:
    """Return the time to encode and score a video, s, by an encoder that has seen none of its images."""
    uncached = copy(model)
    uncached.encoder = encoder
    start_s = time.perf_counter()
    predict(uncached, frames)
    return time.perf_counter() - start_s


def predicts_done(output: RewardOutput) -> float:
    """1 if the task is predicted done at some frame, by the rule that ends episodes of a training; else 0."""
    return float(done_frames(output, DEFAULT_SUCCESS_THRESHOLD, RewardConfig.success_patience).any())


def ending(values: Array) -> float:
    """Mean of the values at the last frames."""
    return float(values[-NUM_LAST_FRAMES:].mean())


def _score_pair(
    scores: PairScores,
    models: Mapping[str, DemonstrationModel],
    demonstration: Episode,
    episode: Episode,
    ends: dict[str, list[tuple[bool, float]]],
) -> None:
    model = models[MODEL]
    frames = stack_views(episode, model.views)
    succeeded = episode.success is not False
    outputs = {name: (predict(each, frames), predict(each, reverse(frames))) for name, each in models.items()}
    whole, backward = outputs[MODEL]
    scores.done.setdefault(f"{WHOLE}, success" if succeeded else f"{WHOLE}, failure", []).append(predicts_done(whole))
    for name, (forward, _) in outputs.items():
        ends.setdefault(name, []).append((succeeded, ending(forward.success)))
    curves = {name: (forward.progress, in_reverse.progress) for name, (forward, in_reverse) in outputs.items()}
    demonstrated = stack_views(demonstration, model.views)
    for name, baseline in BASELINES.items():
        curve, back = (baseline(BaselineInput(demonstrated, f, model)) for f in (frames, reverse(frames)))
        curves[name] = (curve, back)
        ends.setdefault(name, []).append((succeeded, ending(curve)))
    if not succeeded:
        return
    _add_order(scores, curves, episode)
    scores.undone_order.append(order_of_last(predict(model, undo(frames)).progress, len(frames)))
    scores.retried_order.append(order_of_last(predict(model, try_again(frames)).progress, len(frames)))
    for case, make_video in NEVER_DONE.items():
        output = backward if case == REVERSED else predict(model, make_video(frames))
        scores.done.setdefault(case, []).append(predicts_done(output))
    half = predict(model, first_half(frames))
    scores.whole_and_half.append((ending(whole.success), ending(half.success)))
    scores.done.setdefault(HALF, []).append(predicts_done(half))


def _add_order(scores: PairScores, curves: Mapping[str, tuple[Array, Array]], episode: Episode) -> None:
    """Add order and, where it is annotated, error of the curves of a success, forward and backward."""
    try:
        truth = true_progress(episode)
    except DataError:
        truth = None
    for method, (forward, backward) in curves.items():
        scores.order.setdefault(method, []).append(order_of_last(forward, len(forward)))
        scores.reversed_order.setdefault(method, []).append(order_of_last(backward, len(backward)))
        if truth is not None:
            scores.error.setdefault(method, []).append(mae(forward, truth))
