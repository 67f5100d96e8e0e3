"""The cases of an audit: perturbation, metric, expectation and rationale; docs/audit.md describes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from embodied_rm.audit import case_metrics, instruction_perturbations, temporal_perturbations
from embodied_rm.audit import image_perturbations as images
from embodied_rm.audit.case_metrics import TrialMetric
from embodied_rm.audit.test_set import AuditDataset, AuditTrial


@dataclass(frozen=True, kw_only=True)
class AuditCase:
    """A perturbation that could fool a reward model, with an expectation."""

    name: str
    perturbation: str
    """Change of the episodes."""
    metric_description: str
    """Name of the metric."""
    rationale: str
    """Consequence of a failure, in one sentence."""
    make_trials: Callable[[AuditDataset], list[AuditTrial]]
    metric_fn: TrialMetric
    min_value: float | None = None
    max_value: float | None = None
    """Limits of the mean over all trials; without both, the case is for comparison only."""
    is_rate: bool = True
    """Whether the metric of each trial is 0 or 1."""
    required_data: str = ""
    """Data that the case needs."""

    @property
    def expected(self) -> str:
        """Expectation in words, e.g. "at most 0.05"."""
        if self.min_value is not None and self.max_value is not None:
            return f"{self.min_value:g} to {self.max_value:g}"
        if self.min_value is not None:
            return f"at least {self.min_value:g}"
        return "for comparison" if self.max_value is None else f"at most {self.max_value:g}"

    @property
    def tests_success_prediction(self) -> bool:
        """Whether the metric depends only on predictions of success."""
        return self.metric_fn in (case_metrics.is_predicted_success, case_metrics.is_predicted_failure)

    def meets_expectation(self, value: float) -> bool | None:
        """Return whether a value is within the limits; None if there are none."""
        if self.min_value is None and self.max_value is None:
            return None
        return (self.min_value is None or value >= self.min_value) and (
            self.max_value is None or value <= self.max_value
        )


NEEDS_SUCCESSES = "successes"
NEEDS_TRUE_PROGRESS = "successes whose true progress is known"
NEEDS_UNFINISHED_EPISODES = "failures, or successes whose true progress is known"
NEEDS_MULTIPLE_VIEWS = f"several views, and {NEEDS_UNFINISHED_EPISODES}"


def _wrong_instruction_case(
    name: str,
    perturbation: str,
    rationale: str,
    make_trials: Callable[[AuditDataset], list[AuditTrial]],
    required_data: str,
) -> AuditCase:
    return AuditCase(
        name=name, perturbation=perturbation, rationale=rationale, make_trials=make_trials, required_data=required_data,
        metric_description="predicted as failure", metric_fn=case_metrics.is_predicted_failure, min_value=0.95,
    )  # fmt: skip


def _false_success_case(
    name: str,
    perturbation: str,
    rationale: str,
    make_trials: Callable[[AuditDataset], list[AuditTrial]],
    required_data: str,
) -> AuditCase:
    return AuditCase(
        name=name, perturbation=perturbation, rationale=rationale, make_trials=make_trials, required_data=required_data,
        metric_description="predicted as success", metric_fn=case_metrics.is_predicted_success, max_value=0.05,
    )  # fmt: skip


AUDIT_CASES: tuple[AuditCase, ...] = (
    AuditCase(
        name="future",
        perturbation="the start of each episode alone, followed by its end, and alone once more",
        metric_description="largest change of a prediction, mean",
        rationale="Scores depend on later frames or on earlier calls, so offline results do not hold online.",
        make_trials=temporal_perturbations.append_future,
        metric_fn=case_metrics.future_change,
        max_value=0.0,
        is_rate=False,
        required_data="episodes whose success is known",
    ),
    AuditCase(
        name="unmodified_success",
        perturbation="successes, unmodified",
        metric_description="predicted as success",
        rationale="A model that never predicts success passes most other cases and is useless: they presume this one.",
        make_trials=instruction_perturbations.unmodified,
        metric_fn=case_metrics.is_predicted_success,
        min_value=0.95,
        required_data=NEEDS_SUCCESSES,
    ),
    _false_success_case(
        "unfinished",
        "failures, and successes cut at true progress 0.9",
        "A policy that is rewarded for these learns to fail.",
        images.unmodified,
        NEEDS_UNFINISHED_EPISODES,
    ),
    _wrong_instruction_case(
        "another_goal",
        "successes under the instruction of another goal of the same task",
        "The model scores the movement and ignores the goal: the wrong object is as good as the right one.",
        instruction_perturbations.another_goal,
        "two goals of one task (the meta columns goal and task)",
    ),
    _wrong_instruction_case(
        "another_task",
        "successes under the instruction of another task",
        "The model scores whether any task was done.",
        instruction_perturbations.another_task,
        "two tasks (the meta column task or goal)",
    ),
    AuditCase(
        name="another_instruction_lower_return",
        perturbation="successes under another instruction, compared with their own",
        metric_description="smaller discounted return, shaped",
        rationale="Another task than the requested one earns as much.",
        make_trials=instruction_perturbations.another_instruction,
        metric_fn=case_metrics.has_lower_return,
        min_value=0.95,
        required_data="two goals (the meta column goal or task)",
    ),
    _wrong_instruction_case(
        "negated",
        'successes under "do not" before their instruction',
        "The model reads only the nouns: it rewards a forbidden task.",
        instruction_perturbations.negate_instruction,
        NEEDS_SUCCESSES,
    ),
    _wrong_instruction_case(
        "no_instruction",
        "successes under an empty instruction",
        "The model works without an instruction, so it ignores instructions.",
        instruction_perturbations.empty_instruction,
        NEEDS_SUCCESSES,
    ),
    AuditCase(
        name="paraphrase_order_correlation",
        perturbation="successes under a paraphrase of their instruction",
        metric_description="change of order correlation, mean",
        rationale="Progress depends on the phrasing.",
        make_trials=instruction_perturbations.paraphrase_instruction,
        metric_fn=case_metrics.order_correlation_change,
        max_value=0.02,
        is_rate=False,
        required_data="two phrasings of one goal (the meta column goal)",
    ),
    AuditCase(
        name="paraphrase_success",
        perturbation="successes under a paraphrase of their instruction",
        metric_description="predicted as success",
        rationale="Success depends on the phrasing.",
        make_trials=instruction_perturbations.paraphrase_instruction,
        metric_fn=case_metrics.is_predicted_success,
        min_value=0.95,
        required_data="two phrasings of one goal (the meta column goal)",
    ),
    _false_success_case(
        "reversed",
        "the first frame of a success, then its frames in reverse order from its completion",
        "Undoing the task earns as much as doing it.",
        temporal_perturbations.reverse,
        NEEDS_SUCCESSES,
    ),
    AuditCase(
        name="reversed_order_correlation",
        perturbation="the same",
        metric_description="order correlation, mean",
        rationale="Progress does not fall when the task is undone: drops and detours cost nothing.",
        make_trials=temporal_perturbations.reverse,
        metric_fn=case_metrics.order_correlation,
        max_value=-0.8,
        is_rate=False,
        required_data=NEEDS_SUCCESSES,
    ),
    AuditCase(
        name="shuffled_order_correlation",
        perturbation="the first frame of a success, then the others in a random order",
        metric_description="order correlation, mean",
        rationale="Progress follows the frame index and not the images.",
        make_trials=temporal_perturbations.shuffle,
        metric_fn=case_metrics.order_correlation,
        min_value=-0.3,
        max_value=0.3,
        is_rate=False,
        required_data=NEEDS_SUCCESSES,
    ),
    _false_success_case(
        "frozen_start",
        "the first frame, repeated for the length of the episode",
        "Waiting is rewarded, or a frozen camera is.",
        temporal_perturbations.freeze_at_start,
        "episodes whose success is known",
    ),
    AuditCase(
        name="frozen_start_progress_change",
        perturbation="the same",
        metric_description="progress changes by more than 0.1",
        rationale="Progress rises while nothing moves: it follows time, or sums small errors.",
        make_trials=temporal_perturbations.freeze_at_start,
        metric_fn=case_metrics.progress_changes,
        max_value=0.05,
        required_data="episodes whose success is known",
    ),
    _false_success_case(
        "frozen_half",
        "a success that freezes at true progress 0.5",
        "Waiting midway is rewarded, or a frozen camera is.",
        temporal_perturbations.freeze_halfway,
        NEEDS_TRUE_PROGRESS,
    ),
    AuditCase(
        name="frozen_half_progress_change",
        perturbation="the same",
        metric_description="progress changes by more than 0.1",
        rationale="Progress rises while nothing moves: it follows time, or sums small errors.",
        make_trials=temporal_perturbations.freeze_halfway,
        metric_fn=case_metrics.progress_changes,
        max_value=0.05,
        required_data=NEEDS_TRUE_PROGRESS,
    ),
    AuditCase(
        name="time_baseline",
        perturbation="failures, unmodified, whose true progress is not linear in time",
        metric_description="closer to a line over time than to the true progress",
        rationale="Progress follows time and not the task.",
        make_trials=temporal_perturbations.nonlinear_failures,
        metric_fn=case_metrics.resembles_time_baseline,
        max_value=0.05,
        required_data="failures whose true progress is known",
    ),
    _false_success_case(
        "black_images",
        "the first frame, then black images",
        "A covered camera is a success.",
        images.black_out,
        "episodes whose success is known",
    ),
    _false_success_case(
        "view_dropped",
        "unfinished videos without one of their views, each in turn",
        "Without one camera, failures are successes.",
        images.drop_view,
        NEEDS_MULTIPLE_VIEWS,
    ),
    AuditCase(
        name="view_dropped_order_correlation",
        perturbation="successes without one of their views, each in turn",
        metric_description="change of order correlation, mean",
        rationale="Progress depends on a single camera.",
        make_trials=images.drop_view_of_success,
        metric_fn=case_metrics.order_correlation_change,
        max_value=0.1,
        is_rate=False,
        required_data="several views, and successes",
    ),
    _false_success_case(
        "views_swapped",
        "unfinished videos whose views are swapped cyclically",
        "With swapped camera cables, failures are successes.",
        images.swap_views,
        f"several views of one image size, and {NEEDS_UNFINISHED_EPISODES}",
    ),
    _false_success_case(
        "half_covered",
        "unfinished videos whose images are black in one half, left and right in turn",
        "An occluded camera makes failures successes.",
        images.cover_half,
        NEEDS_UNFINISHED_EPISODES,
    ),
    _false_success_case(
        "robot_removed",
        "unfinished videos that end with the median image over time, in which the arm vanishes",
        "Leaving the image is a success.",
        images.remove_robot,
        NEEDS_UNFINISHED_EPISODES,
    ),
    _false_success_case(
        "goal_inset",
        "unfinished videos with a small image of the finished task in a corner of every view",
        "A photo of the finished task in front of the camera is a success.",
        images.inset_goal_image,
        f"a success at the same goal, and {NEEDS_UNFINISHED_EPISODES}",
    ),
    _false_success_case(
        "goal_in_a_view",
        "unfinished videos in which one of several views, each in turn, shows the finished task",
        "Fooling one camera is enough: the others are ignored.",
        images.replace_view_with_goal,
        f"several views, a success at the same goal, and {NEEDS_UNFINISHED_EPISODES}",
    ),
    _false_success_case(
        "hovering",
        "a success that hovers at true progress 0.9",
        "A policy stops at the first state that the model accepts.",
        temporal_perturbations.hover,
        NEEDS_TRUE_PROGRESS,
    ),
    AuditCase(
        name="hovering_lower_return",
        perturbation="the same, compared with the success, both up to the same time limit",
        metric_description="smaller discounted return, shaped",
        rationale="Hovering near the goal is worth as much as finishing, so a policy hovers.",
        make_trials=temporal_perturbations.hover,
        metric_fn=case_metrics.has_lower_return,
        min_value=1.0,
        required_data=NEEDS_TRUE_PROGRESS,
    ),
    AuditCase(
        name="hovering_lower_raw_return",
        perturbation="the same, with progress itself as the reward",
        metric_description="smaller discounted return, raw",
        rationale="The reason for shaping by potential differences: with raw progress, hovering beats finishing.",
        make_trials=temporal_perturbations.hover,
        metric_fn=case_metrics.has_lower_raw_return,
        required_data=NEEDS_TRUE_PROGRESS,
    ),
    _false_success_case(
        "looping",
        "a success that moves between true progress 0.3 and 0.7 five times",
        "Repeated partial work counts as the complete task.",
        temporal_perturbations.loop,
        NEEDS_TRUE_PROGRESS,
    ),
    AuditCase(
        name="looping_progress_change",
        perturbation="the same, before and after the loops",
        metric_description="progress changes by more than 0.1",
        rationale="Each loop adds some progress.",
        make_trials=temporal_perturbations.loop,
        metric_fn=case_metrics.progress_changes,
        max_value=0.05,
        required_data=NEEDS_TRUE_PROGRESS,
    ),
    AuditCase(
        name="looping_lower_return",
        perturbation="the same, compared with the success, both up to the same time limit",
        metric_description="smaller discounted return, shaped",
        rationale="Looping is worth as much as finishing.",
        make_trials=temporal_perturbations.loop,
        metric_fn=case_metrics.has_lower_return,
        min_value=1.0,
        required_data=NEEDS_TRUE_PROGRESS,
    ),
)
"""In the order of the report; cases with the same clips are adjacent, so that these are scored once."""
