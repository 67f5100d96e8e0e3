"""How a policy is refined."""

from __future__ import annotations

from dataclasses import dataclass, field

from embodied_rm.errors import UserError
from embodied_rm.logs.weights_and_biases import refuse_project
from embodied_rm.rl.envs.reward_config import RewardConfig
from embodied_rm.rl.learner.ppo import PPOConfig


@dataclass(frozen=True, kw_only=True)
class RefineConfig:
    """Refinement by PPO, on the learned reward or on one to compare it with."""

    iterations: int = 30
    """Rollouts in total, warm-up included."""
    rollout_steps: int = 60
    """Steps of every environment in one iteration."""
    warmup_iterations: int = 2
    """First iterations, in which only the critic learns: a random critic would ruin the imitated policy."""
    reference_coef: float = 0.005
    """Weight of the KL divergence from the imitated policy; falls linearly to 0 over the iterations."""
    guidance: float = 0.06
    """Weight with which the potential tells the future in the place of the critic, in [0, 1); falls to 0, see
    `guided_until`. Rules that do not shape by a potential have none to be guided by."""
    guided_until: float = 0.9
    """Mean potential at the end of an episode, in (0, 1], a success counting as 1, at which the guidance is 0; it
    returns where they end lower (`embodied_rm.rl.learner.guidance.weight`)."""
    imitation_coef: float = 0.0
    """Weight of the divergence from the demonstrations that the policy was cloned from (nats); stays."""
    stop_success: float = 1.0
    """Stop early when the success rate that the reward knows reached this in each of the last `stop_patience`
    iterations."""
    stop_patience: int = 3
    starts: int = 0
    """Pool of starts of which those that the policy fails from come more often; 0: every episode starts anywhere."""
    watched: int = 64
    """Episodes by which the simulator judges the policy after every iteration, for the learning curve and the alarm
    (`embodied_rm.rl.watch.monitor`); 0: none."""
    wandb: str | None = None
    """Project of Weights & Biases that is told every iteration too; None: none."""
    seed: int = 0
    reward: RewardConfig = field(default_factory=RewardConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)

    def __post_init__(self) -> None:
        refuse_project(self.wandb)
        for name in ("iterations", "rollout_steps", "stop_patience"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not 0 <= self.warmup_iterations < self.iterations:
            raise UserError(
                f"warmup_iterations must be >= 0 and below iterations={self.iterations}, got {self.warmup_iterations}"
            )
        if not 0 < self.stop_success <= 1:
            raise UserError(f"stop_success must be in (0, 1], got {self.stop_success}")
        for name in ("watched", "starts"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not 0 <= self.guidance < 1:
            raise UserError(f"guidance must be in [0, 1), got {self.guidance}")
        if not 0 < self.guided_until <= 1:
            raise UserError(f"guided_until must be in (0, 1], got {self.guided_until}")
        for name in ("reference_coef", "imitation_coef"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be >= 0, got {getattr(self, name)}")


def who_says_so(reward: RewardConfig) -> str:
    """When an episode is a success."""
    if reward.success == "simulator":
        return "when the simulator says so"
    return f"after {reward.success_patience} verdicts of the model >= {reward.success_threshold}"
