"""How a policy is refined."""

from __future__ import annotations

from dataclasses import dataclass, field

from embodied_rm.errors import UserError
from embodied_rm.logs.wandb_writer import check_wandb_project
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.learner.ppo import PPOConfig


@dataclass(frozen=True, kw_only=True)
class RefineConfig:
    """Refinement by PPO, on the learned reward or on one to compare it with."""

    iterations: int = 30
    """Rollouts in total, warm-up included."""
    rollout_steps: int = 60
    """Steps of every environment in one iteration."""
    critic_warmup_iterations: int = 2
    """First iterations, in which only the critic learns: a random critic would ruin the imitated policy."""
    bc_kl_coef: float = 0.005
    """Weight of the KL divergence from the imitated policy; falls linearly to 0 over the iterations."""
    heuristic_coef: float = 0.06
    """Weight with which the potential tells the future in the place of the critic, in [0, 1); falls to 0, see
    `guided_until`. Rules that do not shape by a potential have none to be guided by."""
    heuristic_off_at: float = 0.9
    """Mean potential at the end of an episode, in (0, 1], a success counting as 1, at which the guidance is 0; it
    returns where they end lower (`embodied_rm.rl.learner.hurl.weight`)."""
    imitation_coef: float = 0.0
    """Weight of the divergence from the demonstrations that the policy was cloned from (nats); stays."""
    stop_success: float = 1.0
    """Stop early when the success rate that the reward knows reached this in each of the last `stop_patience`
    iterations."""
    stop_patience: int = 3
    start_pool_size: int = 0
    """Pool of starts of which those that the policy fails from come more often; 0: every episode starts anywhere."""
    eval_episodes: int = 64
    """Episodes by which the simulator judges the policy after every iteration, for the learning curve and the alarm
    (`embodied_rm.rl.watch.hacking_monitor`); 0: none."""
    wandb_project: str | None = None
    """Project of Weights & Biases that is told every iteration too; None: none."""
    seed: int = 0
    reward: RewardConfig = field(default_factory=RewardConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)

    def __post_init__(self) -> None:
        check_wandb_project(self.wandb_project)
        for name in ("iterations", "rollout_steps", "stop_patience"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not 0 <= self.critic_warmup_iterations < self.iterations:
            raise UserError(
                f"warmup_iterations must be >= 0 and below iterations={self.iterations}, got {self.critic_warmup_iterations}"
            )
        if not 0 < self.stop_success <= 1:
            raise UserError(f"stop_success must be in (0, 1], got {self.stop_success}")
        for name in ("eval_episodes", "start_pool_size"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not 0 <= self.heuristic_coef < 1:
            raise UserError(f"guidance must be in [0, 1), got {self.heuristic_coef}")
        if not 0 < self.heuristic_off_at <= 1:
            raise UserError(f"guided_until must be in (0, 1], got {self.heuristic_off_at}")
        for name in ("bc_kl_coef", "imitation_coef"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be >= 0, got {getattr(self, name)}")


def success_description(reward: RewardConfig) -> str:
    """When an episode is a success."""
    if reward.success_source == "simulator":
        return "when the simulator says so"
    return f"after {reward.success_patience} verdicts of the model >= {reward.success_threshold}"
