"""User settings of the reward."""

from dataclasses import dataclass

from embodied_rm.errors import UserError, check_minimum
from embodied_rm.rewards.rules import RULES, find_rule

SUCCESS_SOURCES = ("model", "simulator")


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """Conversion of predictions to rewards. The discount belongs to the learner (`PPOConfig.gamma`)."""

    rule: str = "shaped"
    """Reward rule: a name of `embodied_rm.rewards.rules`."""
    success_source: str = "model"
    """Source of success, which ends the episode and is rewarded: model, or simulator."""
    progress_scale: float = 1.0
    """Weight of the progress: the reward for the whole task, from potential 0 to 1. The critic of `refine` subtracts
    the shaping again."""
    uncertainty_penalty: float = 0.0
    """Multiple of the prediction's uncertainty that is subtracted from its progress."""
    score_every: int = 1
    """Steps between two scores of an environment; the end of an episode is always scored."""
    success_threshold: float | None = None
    """Probability of success from which a prediction counts as success; None: as fitted for the model, else 0.5."""
    success_patience: int = 5
    """Consecutive predictions of success that end an episode as a success."""
    success_in_each_view: bool = False
    """Whether the model must predict success from each camera alone too: a policy can hide the failure from one of
    them, or from most."""
    success_reward: float = 1.0

    def __post_init__(self) -> None:
        rule = find_rule(self.rule)
        if self.success_source not in SUCCESS_SOURCES:
            raise UserError(f"success_source must be one of {', '.join(SUCCESS_SOURCES)}, got {self.success_source!r}")
        if rule.progress_source == "simulator" and self.success_source != "simulator":
            raise UserError(f"rule={self.rule} uses the simulator's progress: it needs success_source=simulator")
        if self.score_every < 1 or self.success_patience < 1:
            values = f"{self.score_every} and {self.success_patience}"
            raise UserError(f"score_every and success_patience must be >= 1, got {values}")
        if self.success_threshold is not None and not 0 < self.success_threshold <= 1:
            raise UserError(f"success_threshold must be in (0, 1], got {self.success_threshold}")
        check_minimum(self, 0, "progress_scale", "success_reward", "uncertainty_penalty")

    def check_rollout_steps(self, rollout_steps: int, max_episode_steps: int | None) -> None:
        """Raise `UserError` if the rule compares with ended episodes and the rollout is shorter than the time limit."""
        compares = find_rule(self.rule).required_input == "reference_rewards"
        if compares and max_episode_steps is not None and rollout_steps < max_episode_steps:
            raise UserError(
                f"rollout_steps={rollout_steps}: rule={self.rule} compares with the ends of the first rollout's "
                f"episodes, and an episode may take {max_episode_steps} steps: set rollout_steps={max_episode_steps} "
                "or more"
            )

    def check_success_prediction(self, predicts_success: bool) -> None:
        """Raise `UserError` if the reward depends on predictions of success and the reward model has none."""
        if predicts_success or self.uses_simulator_only:
            return
        reason = "needs a reward model that predicts success, and this one does not"
        if self.success_source == "model":
            raise UserError(f"success_source=model {reason}: set success_source=simulator")
        if find_rule(self.rule).uses_success_prob:
            model_rules = {name: rule for name, rule in RULES.items() if rule.progress_source == "model"}
            alternatives = ", ".join(sorted(name for name, rule in model_rules.items() if not rule.uses_success_prob))
            raise UserError(f"rule={self.rule} {reason}: choose another rule: {alternatives}")

    @property
    def uses_simulator_only(self) -> bool:
        """Whether the reward comes from the simulator alone, so that no reward model is needed."""
        return self.success_source == "simulator" and find_rule(self.rule).progress_source != "model"
