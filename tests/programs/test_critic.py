"""The critic of reward programs: planted bad ones are refused with the right reason, good ones are not."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from planted_programs import BAD_PROGRAMS, GOOD_PROGRAMS, PlantedProgram

from embodied_rm.programs.critic import ISSUES, ProgramIssue, RecordedStates, criticize
from embodied_rm.programs.program import parse_program
from embodied_rm.tabletop.program_states import record_states, task_variables
from embodied_sim.registry import make_task, task_names

MIN_REFUSED = 38


@cache
def states_of(task: str) -> list[RecordedStates]:
    return record_states(make_task(task), num_layouts=4, seed=1)


def criticize_source(task: str, source: str) -> list[ProgramIssue]:
    return criticize(parse_program(source, task_variables(make_task(task))), states_of(task))


@pytest.mark.parametrize("task", sorted(GOOD_PROGRAMS))
def test_no_good_program_is_refused(task: str) -> None:
    assert criticize_source(task, GOOD_PROGRAMS[task]) == []


def test_there_is_a_good_program_of_every_task() -> None:
    assert sorted(GOOD_PROGRAMS) == sorted(task_names())


def test_bad_programs_are_refused_with_the_right_reason() -> None:
    assert len(BAD_PROGRAMS) == 40
    refused = [planted for planted in BAD_PROGRAMS if is_refused_rightly(planted)]
    assert len(refused) >= MIN_REFUSED, [p for p in BAD_PROGRAMS if p not in refused]


def is_refused_rightly(planted: PlantedProgram) -> bool:
    kinds = {issue.kind for issue in criticize_source(planted.task, planted.source)}
    return bool(kinds & set(planted.right_kinds))


def test_a_reward_of_time_that_ends_at_success_is_accepted() -> None:
    program = GOOD_PROGRAMS["lift_cube"].replace("progress =", "done =")
    assert criticize_source("lift_cube", program + "\nreward = 0.05 * (done - 1)") == []


def test_a_reason_names_the_failure_and_both_values() -> None:
    (issue, *_) = criticize_source("lift_cube", "progress = clip((0.08 - gripper_opening) / 0.035, 0, 1)")
    assert issue.kind == "confuses" and issue.kind in ISSUES
    assert "'drop'" in issue.reason or "'miss'" in issue.reason
    assert "experts are above in" in issue.reason


def test_recorded_states_have_both_outcomes_and_the_right_length() -> None:
    task, episodes = make_task("lift_cube"), states_of("lift_cube")
    counts = Counter(episode.outcome for episode in episodes)
    assert counts["success"] == 4 and set(counts) == {"success", *task.failure_plans()}
    for episode in episodes:
        assert set(episode.values) >= set(task_variables(task))
        assert len(episode) == task.max_episode_steps + 1 or episode.is_success
        raised = episode.values["object_pos"][:, 2] - episode.values["start_object_pos"][:, 2]
        assert (raised[-1] > 0.1) == episode.is_success or episode.outcome == "stall"
        assert raised[0] == 0 and np.isfinite(raised).all()
