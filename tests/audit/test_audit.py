"""Models whose faults are known fail the cases that are made for them, and no others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import readers
from readers import GOALS, PHRASINGS, Reader, trial, trials

from embodied_rm.audit import AUDIT_CASES, AuditDataset, AuditResult, AuditRewardConfig, audit
from embodied_rm.audit.image_perturbations import inset_goal_image
from embodied_rm.audit.instruction_perturbations import another_goal, another_task, paraphrase_instruction
from embodied_rm.rewards.episode_reward import score_mask
from embodied_rm.audit.runner import score_trials
from embodied_rm.audit.temporal_perturbations import hover, loop, reverse, triangle_wave
from embodied_rm.audit.test_set import AuditClip
from embodied_rm.errors import DataError
from embodied_rm.models.scoring import score_episodes
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Episode

WORDS = {"another_goal", "another_task", "another_instruction_lower_return", "negated", "no_instruction"}
FALSE_SUCCESS = {
    case.name for case in AUDIT_CASES if case.metric_description == "predicted as success" and case.max_value is not None
}
PAID = {"hovering_lower_return", "looping_lower_return"}
LATE = {"unmodified_success", "paraphrase_success", "time_baseline"}
"""A clock strikes when the time is up: the successes, and their reversals, are over by then."""
STILL = {"frozen_start_progress_change", "frozen_half_progress_change", "looping_progress_change"}


def tried(model, episodes: list[Episode] | None = None, every: int = 1) -> dict[str, AuditResult]:
    rules = AuditRewardConfig(reward=RewardConfig(score_every=every))
    outcomes = audit(model, trials() if episodes is None else episodes, rules, NullReporter())
    return {outcome.case.name: outcome for outcome in outcomes}


def test_whoever_reads_everything_passes_every_case_and_every_case_is_tried() -> None:
    outcomes = tried(Reader())
    assert list(outcomes) == [case.name for case in AUDIT_CASES]
    assert {name for name, outcome in outcomes.items() if not outcome.passed} == {"hovering_lower_raw_return"}
    assert outcomes["hovering_lower_raw_return"].value == 0, "paid as it is, progress is worth more than the end"
    assert all(outcome.num_trials >= 4 for outcome in outcomes.values())


@pytest.mark.parametrize("every", [1, 3, 4])
def test_a_model_sees_the_frames_that_refinement_scores_and_no_other(every: int) -> None:
    video, clock = trial("good", list(range(0, 200, 20)), "open"), readers.Clock()
    ((curve,),) = score_trials(
        clock, [(AuditClip(episode=video),)], AuditRewardConfig(reward=RewardConfig(score_every=every))
    )
    ticks = score_episodes(clock, [video])[0].progress
    np.testing.assert_array_equal(curve.progress, ticks[np.cumsum(score_mask(len(video), every))])
    assert len(set(curve.progress.tolist())) == 1 + score_mask(len(video), every).sum()


@pytest.mark.parametrize(
    ("kind", "fooled_by"),
    [
        ("Constant", {"unmodified_success", "paraphrase_success", "reversed_order_correlation", "time_baseline", "another_instruction_lower_return", *PAID}),
        ("AlwaysDone", FALSE_SUCCESS | WORDS | PAID),
        ("Clock", FALSE_SUCCESS - {"reversed"} | WORDS | PAID | STILL | LATE | {"reversed_order_correlation", "shuffled_order_correlation"}),
        ("Deaf", WORDS),
        ("TaskOnly", {"another_goal", "another_instruction_lower_return"}),
        ("Keywords", {"negated"}),
        ("Eager", {"negated", "no_instruction"}),
        ("Literal", {"paraphrase_order_correlation", "paraphrase_success", "time_baseline"}),
        ("OneEyed", {"goal_in_a_view"}),
        ("Credulous", {"goal_inset"}),
        ("Nyctophile", {"black_images"}),
        ("Impatient", {"unfinished", "view_dropped", "goal_in_a_view", "hovering", "hovering_lower_return"}),
        ("Confused", {"views_swapped"}),
        ("Imaginative", {"half_covered"}),
        ("Monocle", {"view_dropped", "view_dropped_order_correlation"}),
        ("Startled", {"robot_removed"}),
        ("Creeping", STILL | {"time_baseline"}),
        ("Proud", {"reversed_order_correlation", "shuffled_order_correlation", "time_baseline"}),
        ("Shaky", {"future"}),
    ],
)
def test_each_fault_fails_the_cases_that_are_made_for_it(kind: str, fooled_by: set[str]) -> None:
    outcomes = tried(getattr(readers, kind)())
    assert {name for name, outcome in outcomes.items() if outcome.passed is False} == fooled_by


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_model_that_scores_with_hindsight_is_not_causal_and_an_honest_one_is(every: int) -> None:
    """However seldom videos are scored."""
    assert tried(Reader(), every=every)["future"].value == 0
    for model, least in ((readers.Hindsight(), 0.01), (readers.Forewarned(), 0.9)):
        outcome = tried(model, every=every)["future"]
        assert outcome.passed is False and outcome.value is not None and outcome.value > least


def test_a_loop_lasts_as_long_as_the_success_that_it_is_paid_less_than() -> None:
    for case in (hover, loop):
        assert all(len(bad.episode) == len(good.episode) for bad, good in case(AuditDataset(trials())))
    ((video, _), *_) = loop(AuditDataset(trials()))
    first, last = (video.episode.progress[frame] for frame in video.identical_frames)
    assert first == last and video.identical_frames[1] > video.identical_frames[0]


def test_a_wish_that_is_fulfilled_along_with_another_is_not_held_against_it() -> None:
    """Whoever lifted the red thing opened it too, it says: that it is open is then no mistake."""
    episodes = [
        replace(e, metadata={**e.metadata, "fulfils": "open"}) if e.metadata["task"] == "lift" else e for e in trials()
    ]
    asked = {
        (video.episode.metadata["goal"], video.episode.instruction) for (video,) in another_task(AuditDataset(episodes))
    }
    assert asked and all(goal == "open" for goal, _ in asked)


def test_the_video_of_a_failed_case_is_one_that_fooled_the_model() -> None:
    deaf, half = tried(readers.Deaf()), tried(readers.TaskOnly())
    worst = deaf["negated"].worst_clip
    assert worst is not None and worst.episode.instruction.startswith("do not ")
    assert deaf["negated"].worst_curve is not None and deaf["negated"].worst_curve.success[-1] == 1
    assert half["another_goal"].worst_clip is not None and half["another_task"].worst_clip is None
    unfinished = tried(readers.Impatient())["unfinished"]
    assert unfinished.value == 0.75, "the cut successes and what was undone, not what stalled before"
    assert unfinished.worst_clip is not None and not unfinished.worst_clip.episode.name.startswith("stall")


def test_what_the_data_do_not_hold_is_left_out_by_name() -> None:
    bare = [
        replace(e, views={"front": e.views["front"]}, progress=None, metadata={}) for e in trials() if e.success is True
    ]
    outcomes = tried(Reader(), bare)
    left_out = {name for name, outcome in outcomes.items() if outcome.value is None}
    known = {"future", "unmodified_success", "negated", "no_instruction", "reversed", "reversed_order_correlation", "shuffled_order_correlation"}
    assert set(outcomes) - left_out == known | {"frozen_start", "frozen_start_progress_change", "black_images"}
    assert all(
        outcomes[name].as_dict() == {"skipped": f"needs {outcomes[name].case.required_data}"} for name in left_out
    )
    assert all(outcomes[name].case.required_data for name in left_out)
    assert all(outcomes[name].passed for name in set(outcomes) - left_out)


def test_failures_without_true_progress_are_judged_at_their_end() -> None:
    """One of them is done on the way, and undone again."""
    undone = readers.trial("dropped", [*range(0, 200, 10), *[200] * 10, 100], "open")
    blind, known = (tried(Reader(), [*trials(), e])["unfinished"] for e in (replace(undone, progress=None), undone))
    assert blind.passed and known.passed and blind.num_trials == known.num_trials


def test_an_audit_of_nothing_known_is_refused() -> None:
    unknown = [replace(e, success=None, progress=None) for e in trials()]
    with pytest.raises(DataError, match="no episode has a known outcome"):
        audit(Reader(), unknown, AuditRewardConfig(), NullReporter())


def test_other_words_are_the_datas_own_and_mean_what_they_should() -> None:
    material = AuditDataset(trials())
    wishes = {phrasing.format(goal): goal for goal in GOALS for phrasing in PHRASINGS}
    for make, same_goal, same_task in (
        (another_goal, False, True),
        (another_task, False, False),
        (paraphrase_instruction, True, True),
    ):
        for video, *_ in make(material):
            asked, own = wishes[video.episode.instruction], video.episode.metadata["goal"]
            assert ((asked == own), (asked.split()[0] == own.split()[0])) == (same_goal, same_task)
    for video, original in paraphrase_instruction(material):
        assert video.episode.instruction != original.episode.instruction


def test_videos_run_as_they_say() -> None:
    assert triangle_wave(5, 2, 9).tolist() == [5, 4, 3, 2, 3, 4, 5, 4, 3]
    one = readers.trial("one", [0, 40, 80, 120, 160, 178, 200, 200], "open")
    material = AuditDataset([one])
    back = reverse(material)[0][0]
    shown = back.episode.views["front"][:, 0, 0, 0].tolist()
    assert shown[: back.num_ordered] == [0, 200, 178, 160, 120, 80, 40, 0] and set(shown[back.num_ordered :]) == {0}
    hovering, finish = (video.episode.views["front"][:, 0, 0, 0].tolist() for video in hover(material)[0])
    assert hovering == [0, 40, 80, 120, 160, 178, 160, 120, 80, 120, 160, 178, 160, 120, 80, 120]
    assert finish == [0, 40, 80, 120, 160, 178, *[200] * 10]


def test_the_goal_is_pasted_from_another_success_if_there_is_one() -> None:
    material = AuditDataset(trials())
    for (video,) in inset_goal_image(material):
        donor = material.find_goal_episode(video.episode)
        assert (
            donor is not None
            and donor.name != video.episode.name
            and donor.metadata["goal"] == video.episode.metadata["goal"]
        )
        middle, front = len(video.episode) // 2, video.episode.views["front"][..., 0]
        assert (front[middle:, :2, :2] == 200).all() and (front[:middle, :2, :2] < 200).all()
        assert (front[middle:, 2:, 2:] < 200).all()
    assert AuditDataset([trials()[0]]).find_goal_episode(trials()[0]) is not None, "a success alone is its own"


def test_shares_come_with_an_interval() -> None:
    row = tried(readers.OneEyed())["goal_in_a_view"].as_dict()
    low, high = row["interval"]
    assert 0 < low < row["value"] < high < 1 and row["value"] == 0.5 and row["passed"] is False
    assert row["expected"] == "at most 0.05"
    assert "interval" not in tried(Reader())["reversed_order_correlation"].as_dict()


def test_the_episodes_are_left_as_they_were() -> None:
    episodes = trials()
    before = [{name: frames.copy() for name, frames in e.views.items()} for e in episodes]
    tried(Reader(), episodes)
    for episode, views in zip(episodes, before, strict=True):
        for name, frames in views.items():
            np.testing.assert_array_equal(episode.views[name], frames)


def test_the_page_states_every_case_with_its_threshold() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)$", page, flags=re.MULTILINE))
    assert set(rows) == {case.name for case in AUDIT_CASES}
    for case in AUDIT_CASES:
        assert case.expected in rows[case.name], case.name
