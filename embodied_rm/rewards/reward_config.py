"""How a prediction becomes a reward, as a user sets it."""

from __future__ import annotations

from dataclasses import dataclass

from embodied_rm.errors import UserError
from embodied_rm.rewards.rules import RULES, find_rule

SUCCESS_SOURCES = ("model", "simulator")


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """How a model's prediction becomes a reward. The discount belongs to the learner (`PPOConfig.gamma`)."""

    rule: str = "shaped"
    """How steps are paid: a name of `embodied_rm.rewards.rules`."""
    success_source: str = "model"
    """Who says that an episode succeeded, which ends it and is paid: model, or simulator."""
    progress_scale: float = 1.0
    """Weight of the progress: the whole task, from potential 0 to 1, is worth this much. A critic that knows what
    shaping adds, as that of `refine`, takes it off again."""
    uncertainty_penalty: float = 0.0
    """Spreads of the model's prediction that are taken off its progress: what it doubts is worth less."""
    score_every: int = 1
    """Steps between two scores of a row; an episode's end is always scored."""
    success_threshold: float = 0.5
    """Probability of success from which a score counts as the verdict "done"."""
    success_patience: int = 5
    """Consecutive verdicts that are the model's "success"."""
    success_reward: float = 1.0

    def __post_init__(self) -> None:
        rule = find_rule(self.rule)
        if self.success_source not in SUCCESS_SOURCES:
            raise UserError(f"success must be one of {', '.join(SUCCESS_SOURCES)}, got {self.success_source!r}")
        if rule.progress_source == "simulator" and self.success_source != "simulator":
            raise UserError(f"rule={self.rule} is paid from the simulator's state: it needs success=simulator")
        if self.score_every < 1 or self.success_patience < 1:
            raise UserError(
                f"score_every and success_patience must be >= 1, got {self.score_every} and {self.success_patience}"
            )
        if not 0 < self.success_threshold <= 1:
            raise UserError(f"success_threshold must be in (0, 1], got {self.success_threshold}")
        for name in ("progress_scale", "success_reward", "uncertainty_penalty"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be >= 0, got {getattr(self, name)}")

    def check_rollout_steps(self, rollout_steps: int, max_episode_steps: int | None) -> None:
        """Raises `UserError` for a rule that compares with episodes that ended, where rollouts of so many steps may
        end none within the time limit."""
        if (
            find_rule(self.rule).required_input == "references"
            and max_episode_steps is not None
            and rollout_steps < max_episode_steps
        ):
            raise UserError(
                f"rollout_steps={rollout_steps}: rule={self.rule} compares with how the first rollout's "
                f"episodes end, and one may take {max_episode_steps} steps: set rollout_steps={max_episode_steps} or more"
            )

    def check_success_prediction(self, predicts_success: bool) -> None:
        """Raises `UserError` where the reward model must say whether the task is done and does not."""
        if predicts_success or self.uses_simulator_only:
            return
        if self.success_source == "model":
            raise UserError(
                "success=model lets the reward model say when the task is done, and this one does not tell: set "
                "success=simulator"
            )
        if find_rule(self.rule).uses_success_prob:
            alternatives = ", ".join(
                name for name, rule in RULES.items() if rule.progress_source == "model" and not rule.uses_success_prob
            )
            raise UserError(
                f"rule={self.rule} is paid by whether the reward model thinks the task done, and this one does not "
                f"tell: choose another rule: {alternatives}"
            )

    @property
    def uses_simulator_only(self) -> bool:
        """Whether the simulator alone says what a step is worth, and no model is asked."""
        return self.success_source == "simulator" and find_rule(self.rule).progress_source != "model"
