"""The table of `evaluate` against reward models whose every number is known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.errors import DataError
from embodied_rm.evaluate import (
    actor_tau,
    assign_goal_rows,
    concat_predictions,
    evaluate,
    predict_baseline,
    predict_episodes,
    reverse_episode,
)
from embodied_rm.evaluate.view_subsets import MaskedViews, iter_view_subsets
from embodied_rm.labels.labeled_episode import label
from embodied_rm.models.baselines import oracle
from embodied_rm.models.reward_model import Capabilities
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Episode, RewardOutput, Subtask, Views

STEPS = ("a", "b", "c", "d")


@dataclass
class Nothing:
    """The memory of a model that needs none."""

    length: int

    def __len__(self) -> int:
        return self.length

    def take(self, rows) -> Nothing:
        return Nothing(len(rows))

    def put(self, rows, other) -> Nothing:
        return self

    def potential(self) -> np.ndarray:
        return np.zeros(self.length, np.float32)


class Reader:
    """Reads the true progress off the first pixel, and tells it changed by `say`."""

    capabilities = Capabilities()

    def __init__(self, say=lambda truth: truth) -> None:
        self.say = say

    def reset(self, views: Views, instructions: Sequence[str], goal: Views | None = None) -> Nothing:
        return Nothing(len(views))

    def step(self, memory: Nothing, views: Views) -> tuple[RewardOutput, Nothing]:
        truth = views.frames[:, 0, 0, 0, 0].astype(np.float32) / 200
        value = np.clip(self.say(truth), 0, 1).astype(np.float32)
        return (
            RewardOutput(
                progress=value,
                valid=np.ones(len(value), bool),
                subtask=np.minimum((truth * 4).astype(np.int64), 3),
                success=(value > 0.99).astype(np.float32),
                uncertainty=np.zeros(len(value), np.float32),
            ),
            memory,
        )


def episode(name: str, percent: list[int], *, steps: bool = True, success: bool | None = None) -> Episode:
    """The progress in half percents is painted on every pixel."""
    progress = np.array(percent, np.float32) / 200
    frames = np.broadcast_to(np.array(percent, np.uint8)[:, None, None, None], (len(percent), 4, 4, 3))
    places = np.minimum((progress * 4).astype(int), 3)
    runs = tuple(Subtask(name=STEPS[k], start=i, end=i + 1) for i, k in enumerate(places)) if steps else ()
    return Episode(
        name=name,
        views={"front": np.ascontiguousarray(frames)},
        instruction="go",
        fps=10.0,
        subtasks=runs,
        success=percent[-1] == 200 if success is None else success,
        progress=progress,
        metadata={"task": "go"},
    )


GOOD = [episode(f"good{i}", [*range(0, 200, 8 + i), 200, 200, 200]) for i in range(3)]
BAD = [episode("stall", [*range(0, 100, 5), *[100] * 20]), episode("undo", [*range(0, 160, 5), *range(160, -1, -5)])]


def test_the_truth_gets_the_best_of_everything():
    result = evaluate(Reader(), GOOD + BAD, NullReporter())
    table = dict(result["reward_model"])
    assert table.pop("seconds_per_frame") > 0
    assert table.pop("resolution") == pytest.approx(result["baselines"]["oracle"]["resolution"])
    assert table == pytest.approx(
        {
            "voc": 1,
            "voc_reversed": -1,
            "voc_f1": 1,
            "mae": 0,
            "mae_successes": 0,
            "mae_failures": 0,
            "preference_accuracy": 1,
            "preference_accuracy_short": 1,
            "preference_accuracy_middle": 1,
            "preference_accuracy_long": 1,
            "epic": 0,
            "starc": 0,
            "success_auc": 1,
            "mcc": 1,
            "completion_accuracy": 1,
            "ece": 0,
            "success_precision": 1,
            "success_recall": 1,
            "subtask_accuracy": 1,
            "segmentation_f1": 1,
        },
        abs=1e-6,
    )
    assert result["baselines"]["oracle"]["voc"] == pytest.approx(1)
    assert result["episodes"] == {"successes": 3, "failures": 2}


def test_the_clock_is_in_perfect_order_and_wrong_about_failures():
    clock = evaluate(Reader(), GOOD + BAD, NullReporter())["baselines"]["time"]
    assert clock["voc"] == pytest.approx(1)
    stall, undo = (np.linspace(0, 1, len(e)) - e.progress for e in BAD)
    assert clock["mae_failures"] == pytest.approx((abs(stall).mean() + abs(undo).mean()) / 2)


def test_a_model_that_says_the_opposite_gets_the_opposite_sign():
    result = evaluate(Reader(lambda truth: 1 - truth), GOOD + BAD, NullReporter())["reward_model"]
    assert result["voc"] < -0.7 and result["voc_reversed"] == pytest.approx(1)
    # "undo" ends where the opposite of the truth is success.
    assert result["success_auc"] == pytest.approx(0.25)
    assert result["voc_f1"] == 0
    assert result["epic"] == pytest.approx(1, abs=1e-3) and result["starc"] == pytest.approx(1, abs=1e-3)
    assert result["mcc"] < 0 and result["preference_accuracy"] < 0.5


def test_a_constant_offset_shows_in_the_error_alone():
    result = evaluate(Reader(lambda truth: 0.1 + 0.8 * truth), [GOOD[0]], NullReporter())["reward_model"]
    truth = GOOD[0].progress
    assert truth is not None
    expected = np.abs(0.1 - 0.2 * truth)
    expected[0] = 0.0  # the first frame's potential is 0 by contract
    assert result["mae_successes"] == pytest.approx(expected.mean(), abs=1e-6)
    assert result["voc"] == pytest.approx(1)
    assert result["epic"] == pytest.approx(0, abs=1e-3), "a policy that is trained on it sees no difference"


def test_what_knows_nothing_gets_what_chance_gives():
    baselines = evaluate(Reader(), GOOD + BAD, NullReporter())["baselines"]
    assert baselines["constant"]["preference_accuracy"] == 0.5
    assert baselines["constant"]["starc"] == pytest.approx(0.5, abs=1e-12) and "epic" not in baselines["constant"]
    assert baselines["constant"]["resolution"] == 1
    assert 0.1 < baselines["time"]["epic"] < 0.7
    assert baselines["time"]["preference_accuracy"] == 0.5, "it ends at 1 whatever happened"
    assert baselines["time"]["success_auc"] == baselines["constant"]["success_auc"] == 0.5
    assert baselines["time"]["voc_reversed"] == pytest.approx(1), "backwards too, time goes on"
    assert baselines["oracle"]["voc_reversed"] == pytest.approx(-1, abs=0.05)
    perfect = {
        "success_auc": 1,
        "completion_accuracy": 1,
        "mcc": 1,
        "success_precision": 1,
        "success_recall": 1,
        "ece": 0,
    }
    assert {name: baselines["oracle"][name] for name in perfect} == perfect, "what can be reached"
    assert not {"subtask_accuracy", "uncertainty_correlation", "interval_coverage", "seconds_per_frame"} & {
        key for table in baselines.values() for key in table
    }


def test_the_oracle_backwards_is_the_truth_of_the_video_that_a_model_is_shown_backwards():
    labels = label(GOOD)
    shown = predict_episodes(Reader(), GOOD).reversed_predictions
    told = predict_baseline(oracle, labels).reversed_predictions
    for seen, known in zip(shown, told, strict=True):
        assert np.allclose(seen.progress[1:], known.progress[1:], atol=1e-6)


def test_what_cannot_be_computed_is_left_out_and_a_model_that_says_nothing_is_counted():
    result = evaluate(Reader(lambda truth: 0 * truth), [replace(e, subtasks=()) for e in GOOD], NullReporter())
    assert set(result["reward_model"]) == {
        "mae",
        "mae_successes",
        "voc_undefined",
        "success_recall",
        "completion_accuracy",
        "ece",
        "resolution",
        "starc",
        "seconds_per_frame",
    }
    assert result["reward_model"]["voc_undefined"] == len(GOOD)
    assert result["reward_model"]["success_recall"] == 0, "nothing was called done: its precision does not exist"
    assert "voc" not in result["baselines"]["constant"]


def test_backwards_is_the_true_start_then_the_way_back_from_where_it_is_done():
    tried = episode("e", [0, 50, 100, 200, 200, 200])
    shown = reverse_episode(tried, label([tried])[0]).views["front"][:, 0, 0, 0]
    assert shown.tolist() == [0, 200, 100, 50, 0]


def test_an_episode_without_known_progress_is_named():
    with pytest.raises(DataError, match="stall: "):
        evaluate(Reader(), [replace(BAD[0], progress=None)], NullReporter())


def test_actors_are_ranked_by_how_far_they_come():
    labels, outcomes = label(GOOD + BAD), ["expert"] * 3 + ["stall", "undo"]
    truths = [e.progress for e in labels]
    assert actor_tau(truths, labels, outcomes) == 1
    assert actor_tau([1 - truth for truth in truths], labels, outcomes) == -1
    assert actor_tau([np.full_like(truth, 0.5) for truth in truths], labels, outcomes) == 0
    # Expert before stall and undo, but those two exchanged: 2 pairs right, 1 wrong.
    assert actor_tau([*truths[:3], truths[4], truths[3]], labels, outcomes) == pytest.approx(1 / 3)
    assert np.isnan(actor_tau(truths, labels, [None] * 5))


def test_segments_are_those_of_the_annotated_frames():
    model = Reader()
    judged = predict_episodes(model, GOOD)
    assert evaluate(model, GOOD, NullReporter(), judged)["reward_model"]["segmentation_f1"] == 1
    stuck = replace(judged, predictions=tuple(replace(c, subtask=np.zeros_like(c.subtask)) for c in judged.predictions))
    # One segment said in each, a quarter of the truth: none found, three made up, twelve missed.
    assert evaluate(model, GOOD, NullReporter(), stuck)["reward_model"]["segmentation_f1"] == 0
    silent = replace(
        judged, predictions=tuple(replace(c, subtask=np.full_like(c.subtask, -1)) for c in judged.predictions)
    )
    table = evaluate(model, GOOD, NullReporter(), silent)["reward_model"]
    assert "segmentation_f1" not in table and "subtask_accuracy" not in table, "a model that knows no steps"


def test_judging_one_by_one_is_judging_all_at_once():
    model = Reader(lambda truth: truth**2)
    together, apart = (
        predict_episodes(model, GOOD + BAD),
        concat_predictions(predict_episodes(model, [e]) for e in GOOD + BAD),
    )
    assert apart.num_frames == together.num_frames
    assert [said is not None for said in together.reversed_predictions] == [True] * 3 + [False] * 2
    one, other = (evaluate(model, GOOD + BAD, NullReporter(), said)["reward_model"] for said in (together, apart))
    assert one.pop("seconds_per_frame") > 0 and other.pop("seconds_per_frame") > 0
    assert one == other


def test_a_part_of_a_prediction_is_the_prediction_of_that_part():
    model, rows = Reader(lambda truth: truth**2), [3, 1]
    part = [(GOOD + BAD)[row] for row in rows]
    taken = evaluate(model, part, NullReporter(), predict_episodes(model, GOOD + BAD).take(rows))["reward_model"]
    alone = evaluate(model, part, NullReporter())["reward_model"]
    assert taken.pop("seconds_per_frame") > 0 and alone.pop("seconds_per_frame") > 0
    assert taken == alone and "voc_reversed" in taken


def test_another_model_gets_a_row_among_the_baselines():
    reverse = predict_episodes(Reader(lambda truth: 1 - truth), GOOD)
    result = evaluate(Reader(), GOOD, NullReporter(), other_predictions={"reverse": reverse})
    assert set(result["baselines"]) == {"constant", "time", "oracle", "reverse"}
    assert result["baselines"]["reverse"]["voc"] < -0.7 and result["reward_model"]["voc"] == pytest.approx(1)


def test_a_goal_is_the_success_of_another_episode_with_the_same_goal():
    red = [replace(e, metadata={"task": "go", "goal": "red"}) for e in (*GOOD[:2], BAD[0])]
    blue = [replace(e, metadata={"task": "go", "goal": "blue"}) for e in (GOOD[2], BAD[1])]
    assert assign_goal_rows(label([*red, *blue])) == [1, 0, 0, None, 3]
    assert assign_goal_rows(label(GOOD)) == [1, 2, 0]


def test_only_the_chosen_views_are_there_in_episodes_and_goals():
    seen: list[Views] = []

    class Witness(Reader):
        def reset(self, views, instructions, goal=None, reference=None):
            seen.extend([views, goal])
            return super().reset(views, instructions, goal)

        def step(self, memory, views):
            seen.append(views)
            return super().step(memory, views)

    frames = np.zeros((2, 3, 4, 4, 3), np.uint8)
    views = Views(names=("front", "side", "wrist"), frames=frames, present=np.array([[True, True, True], [False] * 3]))
    model = MaskedViews(Witness(), ("front", "wrist"))
    model.step(model.reset(views, ["go", "go"], replace(views, present=None)), views)
    assert [v.present.tolist() for v in seen] == [
        [[True, False, True], [False, False, False]],
        [[True, False, True], [True, False, True]],
        [[True, False, True], [False, False, False]],
    ]
    assert (
        list(iter_view_subsets(("a", "b"))) == [("a", "b"), ("a",), ("b",)] and len(list(iter_view_subsets("abc"))) == 7
    )


def test_episodes_that_are_not_meant_still_tell_the_order_of_steps():
    jumbled = replace(BAD[1], subtasks=tuple(replace(s, name=STEPS[3 - STEPS.index(s.name)]) for s in BAD[1].subtasks))
    alone = evaluate(Reader(), [jumbled], NullReporter())["reward_model"]
    beside = evaluate(Reader(), [jumbled, GOOD[0]], NullReporter(), rows=[0])
    assert beside["episodes"] == {"successes": 0, "failures": 1}
    assert alone["subtask_accuracy"] != beside["reward_model"]["subtask_accuracy"], "another order, other numbers of steps"


def test_every_number_is_explained():
    page = (Path(__file__).resolve().parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    explained = {
        key for cell in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for key in re.findall(r"`(\w+)`", cell)
    }
    outcomes = ["expert"] * 3 + ["stall", "undo"]
    episodes = [replace(e, metadata={**e.metadata, "outcome": o}) for e, o in zip(GOOD + BAD, outcomes, strict=True)]
    result = evaluate(Reader(), episodes, NullReporter())
    wrong = evaluate(Reader(lambda truth: 0 * truth), episodes, NullReporter())
    judged = predict_episodes(Reader(), GOOD + BAD)
    unsure = evaluate(
        Reader(), episodes, NullReporter(), replace(judged, predictions=tuple(map(noisy, judged.predictions)))
    )
    written = {key for table in (result, wrong, unsure) for key in table["reward_model"]}
    assert written | set(result["baselines"]) == explained - {"similarity"}


def noisy(curve: RewardOutput) -> RewardOutput:
    """The curve with errors, and a spread as large as they are; every second frame is out of distribution."""
    value = np.clip(curve.progress + np.random.default_rng(0).normal(0, 0.1, len(curve)), 0, 1).astype(np.float32)
    unusual = np.float32(0.5 + np.arange(len(curve)) % 2)
    unusual[0] = np.nan  # nobody judges the first frame
    return replace(curve, progress=value, uncertainty=np.abs(value - curve.progress), ood=unusual)


def test_a_spread_that_knows_the_error_is_found_out():
    judged = predict_episodes(Reader(), GOOD + BAD)
    honest = tuple(map(noisy, judged.predictions))
    table = evaluate(Reader(), GOOD + BAD, NullReporter(), replace(judged, predictions=honest))["reward_model"]
    assert table["uncertainty_correlation"] == pytest.approx(1) and 0.8 < table["interval_coverage"] <= 1
    told = [c.ood[1:] for c in honest]
    assert table["ood_rate"] == pytest.approx(np.mean(np.concatenate(told) > 1)) and 0.4 < table["ood_rate"] < 0.6
    wrong = [replace(curve, uncertainty=1 - curve.uncertainty) for curve in honest]
    table = evaluate(Reader(), GOOD + BAD, NullReporter(), replace(judged, predictions=tuple(wrong)))["reward_model"]
    assert table["uncertainty_correlation"] == pytest.approx(-1, abs=1e-3)
