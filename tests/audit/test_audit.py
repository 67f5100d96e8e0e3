"""Models with known defects fail the cases for these defects, and no others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import readers
from readers import GOALS, PHRASINGS, PerfectModel, trial, trials

from embodied_rm.audit import AuditResult, AuditRewardConfig, audit
from embodied_rm.audit.cases import AUDIT_CASES
from embodied_rm.audit.image_perturbations import inset_goal_image
from embodied_rm.audit.instruction_perturbations import another_goal, another_task, paraphrase_instruction
from embodied_rm.audit.runner import score_trials
from embodied_rm.audit.temporal_perturbations import hover, loop, reverse, triangle_wave
from embodied_rm.audit.test_set import AuditClip, AuditDataset
from embodied_rm.client.episode_reward import score_mask
from embodied_rm.errors import DataError
from embodied_rm.models.scoring import score_episodes
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Episode

INSTRUCTION_CASES = {"another_goal", "another_task", "another_instruction_lower_return", "negated", "no_instruction"}
FALSE_SUCCESS = {
    case.name
    for case in AUDIT_CASES
    if case.metric_description == "predicted as success" and case.max_value is not None
}
RETURN_CASES = {"hovering_lower_return", "looping_lower_return"}
LATE_CASES = {"unmodified_success", "paraphrase_success", "time_baseline"}
"""Cases that `TimeModel` fails because it predicts success too late."""
STILL_CASES = {"frozen_start_progress_change", "frozen_half_progress_change", "looping_progress_change"}


def run_audit(model, episodes: list[Episode] | None = None, score_every: int = 1) -> dict[str, AuditResult]:
    config = AuditRewardConfig(reward=RewardConfig(score_every=score_every))
    results = audit(model, trials() if episodes is None else episodes, config, NullReporter())
    return {result.case.name: result for result in results}


def test_perfect_model_passes_every_case() -> None:
    results = run_audit(PerfectModel())
    assert list(results) == [case.name for case in AUDIT_CASES]
    assert {name for name, result in results.items() if not result.passed} == {"hovering_lower_raw_return"}
    assert results["hovering_lower_raw_return"].value == 0, "raw progress is worth more than success"
    assert all(result.num_trials >= 4 for result in results.values())


@pytest.mark.parametrize("score_every", [1, 3, 4])
def test_only_frames_that_refinement_scores_are_scored(score_every: int) -> None:
    video, model = trial("good", list(range(0, 200, 20)), "open"), readers.TimeModel()
    ((curve,),) = score_trials(
        model, [(AuditClip(episode=video),)], AuditRewardConfig(reward=RewardConfig(score_every=score_every))
    )
    scores = score_episodes(model, [video])[0].progress
    np.testing.assert_array_equal(curve.progress, scores[np.cumsum(score_mask(len(video), score_every))])
    assert len(set(curve.progress.tolist())) == 1 + score_mask(len(video), score_every).sum()


@pytest.mark.parametrize(
    ("kind", "failed_cases"),
    [
        (
            "Constant",
            {
                "unmodified_success",
                "paraphrase_success",
                "reversed_order_correlation",
                "time_baseline",
                "another_instruction_lower_return",
                *RETURN_CASES,
            },
        ),
        ("AlwaysDone", FALSE_SUCCESS | INSTRUCTION_CASES | RETURN_CASES),
        (
            "TimeModel",
            FALSE_SUCCESS - {"reversed"}
            | INSTRUCTION_CASES
            | RETURN_CASES
            | STILL_CASES
            | LATE_CASES
            | {"reversed_order_correlation", "shuffled_order_correlation"},
        ),
        ("IgnoresInstruction", INSTRUCTION_CASES),
        ("TaskOnly", {"another_goal", "another_instruction_lower_return"}),
        ("Keywords", {"negated"}),
        ("EmptyInstructionIsDone", {"negated", "no_instruction"}),
        ("TwoPhrasings", {"paraphrase_order_correlation", "paraphrase_success", "time_baseline"}),
        ("FirstViewOnly", {"goal_in_a_view"}),
        ("TrustsCorner", {"goal_inset"}),
        ("BlackIsDone", {"black_images"}),
        ("EarlySuccess", {"unfinished", "view_dropped", "goal_in_a_view", "hovering", "hovering_lower_return"}),
        ("SwappedViewIsDone", {"views_swapped"}),
        ("HiddenIsDone", {"half_covered"}),
        ("SingleViewIsDone", {"view_dropped", "view_dropped_order_correlation"}),
        ("ProgressDropIsDone", {"robot_removed"}),
        ("CreepingProgress", STILL_CASES | {"time_baseline"}),
        ("MonotonicProgress", {"reversed_order_correlation", "shuffled_order_correlation", "time_baseline"}),
        ("CallCounting", {"future"}),
    ],
)
def test_each_defect_fails_its_cases(kind: str, failed_cases: set[str]) -> None:
    results = run_audit(getattr(readers, kind)())
    assert {name for name, result in results.items() if result.passed is False} == failed_cases


@pytest.mark.parametrize("score_every", [1, 2, 3])
def test_causality_case(score_every: int) -> None:
    assert run_audit(PerfectModel(), score_every=score_every)["future"].value == 0
    for model, min_change in ((readers.Hindsight(), 0.01), (readers.FutureOod(), 0.9)):
        result = run_audit(model, score_every=score_every)["future"]
        assert result.passed is False and result.value is not None and result.value > min_change


def test_loops_and_hovering_have_the_length_of_the_success() -> None:
    for case in (hover, loop):
        assert all(len(bad.episode) == len(good.episode) for bad, good in case(AuditDataset(trials())))
    ((video, _), *_) = loop(AuditDataset(trials()))
    first, last = (video.episode.progress[frame] for frame in video.identical_frames)
    assert first == last and video.identical_frames[1] > video.identical_frames[0]


def test_goals_that_are_fulfilled_too_are_no_wrong_instructions() -> None:
    """The lift episodes fulfil `open` too, so `open` is not a wrong instruction for them."""
    episodes = [
        replace(e, metadata={**e.metadata, "fulfils": "open"}) if e.metadata["task"] == "lift" else e for e in trials()
    ]
    asked = {
        (video.episode.metadata["goal"], video.episode.instruction) for (video,) in another_task(AuditDataset(episodes))
    }
    assert asked and all(goal == "open" for goal, _ in asked)


def test_worst_clip_fooled_the_model() -> None:
    deaf, half = run_audit(readers.IgnoresInstruction()), run_audit(readers.TaskOnly())
    worst = deaf["negated"].worst_clip
    assert worst is not None and worst.episode.instruction.startswith("do not ")
    assert deaf["negated"].worst_curve is not None and deaf["negated"].worst_curve.success[-1] == 1
    assert half["another_goal"].worst_clip is not None and half["another_task"].worst_clip is None
    unfinished = run_audit(readers.EarlySuccess())["unfinished"]
    assert unfinished.value == 0.75, "the cut successes and the dropped episodes, not the stalled ones"
    assert unfinished.worst_clip is not None and not unfinished.worst_clip.episode.name.startswith("stall")


def test_cases_without_data_are_skipped() -> None:
    successes = [
        replace(e, views={"front": e.views["front"]}, progress=None, metadata={}) for e in trials() if e.success is True
    ]
    results = run_audit(PerfectModel(), successes)
    skipped = {name for name, result in results.items() if result.value is None}
    known = {
        "future",
        "unmodified_success",
        "negated",
        "no_instruction",
        "reversed",
        "reversed_order_correlation",
        "shuffled_order_correlation",
    }
    assert set(results) - skipped == known | {"frozen_start", "frozen_start_progress_change", "black_images"}
    assert all(results[name].as_dict() == {"skipped": f"needs {results[name].case.required_data}"} for name in skipped)
    assert all(results[name].case.required_data for name in skipped)
    assert all(results[name].passed for name in set(results) - skipped)


def test_failures_without_true_progress_are_evaluated_at_their_end() -> None:
    """One of them is done and then dropped."""
    dropped = readers.trial("dropped", [*range(0, 200, 10), *[200] * 10, 100], "open")
    unknown, known = (
        run_audit(PerfectModel(), [*trials(), e])["unfinished"] for e in (replace(dropped, progress=None), dropped)
    )
    assert unknown.passed and known.passed and unknown.num_trials == known.num_trials


def test_unknown_outcomes_raise() -> None:
    unknown = [replace(e, success=None, progress=None) for e in trials()]
    with pytest.raises(DataError, match="no episode has a known outcome"):
        audit(PerfectModel(), unknown, AuditRewardConfig(), NullReporter())


def test_perturbed_instructions_come_from_the_data() -> None:
    dataset = AuditDataset(trials())
    goal_of_instruction = {phrasing.format(goal): goal for goal in GOALS for phrasing in PHRASINGS}
    for make, same_goal, same_task in (
        (another_goal, False, True),
        (another_task, False, False),
        (paraphrase_instruction, True, True),
    ):
        for video, *_ in make(dataset):
            asked, own = goal_of_instruction[video.episode.instruction], video.episode.metadata["goal"]
            assert ((asked == own), (asked.split()[0] == own.split()[0])) == (same_goal, same_task)
    for video, original in paraphrase_instruction(dataset):
        assert video.episode.instruction != original.episode.instruction


def test_frame_order_of_perturbed_clips() -> None:
    assert triangle_wave(5, 2, 9).tolist() == [5, 4, 3, 2, 3, 4, 5, 4, 3]
    episode = readers.trial("episode", [0, 40, 80, 120, 160, 178, 200, 200], "open")
    dataset = AuditDataset([episode])
    reversed_clip = reverse(dataset)[0][0]
    order = reversed_clip.episode.views["front"][:, 0, 0, 0].tolist()
    assert order[: reversed_clip.num_ordered] == [0, 200, 178, 160, 120, 80, 40, 0] and set(
        order[reversed_clip.num_ordered :]
    ) == {0}
    hovering, finish = (video.episode.views["front"][:, 0, 0, 0].tolist() for video in hover(dataset)[0])
    assert hovering == [0, 40, 80, 120, 160, 178, 160, 120, 80, 120, 160, 178, 160, 120, 80, 120]
    assert finish == [0, 40, 80, 120, 160, 178, *[200] * 10]


def test_goal_image_comes_from_another_success() -> None:
    dataset = AuditDataset(trials())
    for (video,) in inset_goal_image(dataset):
        goal_episode = dataset.find_goal_episode(video.episode)
        assert (
            goal_episode is not None
            and goal_episode.name != video.episode.name
            and goal_episode.metadata["goal"] == video.episode.metadata["goal"]
        )
        middle, front = len(video.episode) // 2, video.episode.views["front"][..., 0]
        assert (front[middle:, :2, :2] == 200).all() and (front[:middle, :2, :2] < 200).all()
        assert (front[middle:, 2:, 2:] < 200).all()
    assert AuditDataset([trials()[0]]).find_goal_episode(trials()[0]) is not None, (
        "a single success is its own goal episode"
    )


def test_rates_have_an_interval() -> None:
    row = run_audit(readers.FirstViewOnly())["goal_in_a_view"].as_dict()
    low, high = row["interval"]
    assert 0 < low < row["value"] < high < 1 and row["value"] == 0.5 and row["passed"] is False
    assert row["expected"] == "at most 0.05"
    assert "interval" not in run_audit(PerfectModel())["reversed_order_correlation"].as_dict()


def test_episodes_are_not_modified() -> None:
    episodes = trials()
    before = [{name: frames.copy() for name, frames in e.views.items()} for e in episodes]
    run_audit(PerfectModel(), episodes)
    for episode, views in zip(episodes, before, strict=True):
        for name, frames in views.items():
            np.testing.assert_array_equal(episode.views[name], frames)


def test_docs_list_every_case_with_its_threshold() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)$", page, flags=re.MULTILINE))
    assert set(rows) == {case.name for case in AUDIT_CASES}
    for case in AUDIT_CASES:
        assert case.expected in rows[case.name], case.name
