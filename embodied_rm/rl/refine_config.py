"""Settings of policy refinement."""

from dataclasses import dataclass, field
from typing import Literal

from embodied_rm.errors import UserError, check_minimum
from embodied_rm.logs.wandb_writer import check_wandb_project
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rl.envs.state_archive import ArchiveConfig
from embodied_rm.rl.envs.takeover import TakeoverConfig
from embodied_rm.rl.learner.ppo import PPOConfig
from embodied_rm.rl.off_policy.off_policy_config import HNPGConfig, RLPDConfig

ALGORITHMS = ("ppo", "hnpg", "rlpd")
USES_RECORDED = ("hnpg", "rlpd")
"""Algorithms that learn from recorded transitions too."""


@dataclass(frozen=True, kw_only=True)
class RefineConfig:
    """Refinement by reinforcement learning, on a learned reward or on another one for comparison."""

    algorithm: Literal["ppo", "hnpg", "rlpd"] = "ppo"
    """Proximal policy optimization, the same with a critic that learns from recorded transitions too, or off-policy
    learning with recorded transitions, which needs fewer episodes."""
    iterations: int = 30  # number of rollouts, warm-up included
    rollout_steps: int = 60  # steps of each environment per rollout
    critic_warmup_iterations: int = 2
    """First iterations, in which only the critic is trained: a random critic would ruin the imitated policy."""
    bc_kl_coef: float = 0.005
    """Weight of the KL divergence from the imitated policy; it falls linearly to 0 over the iterations."""
    heuristic_coef: float = 0.06
    """Weight of the potential in the value of the next state, in [0, 1) (HuRL); it falls to 0, see `heuristic_off_at`.
    Only for rules with potential-based shaping."""
    heuristic_off_at: float = 0.9
    """Mean final potential of the episodes, in (0, 1], at which the heuristic has weight 0; a success counts as 1. The
    weight rises again if final potentials fall (`embodied_rm.rl.learner.hurl.heuristic_weight`)."""
    imitation_coef: float = 0.0
    """Weight of the KL divergence (nats) from the demonstrations of the cloned policy; it is constant."""
    stop_success: float = 1.0
    """Stop early when the success rate according to `reward.success_source` reached this in each of the last
    `stop_patience` iterations, and in as many more as it takes for 30 episodes."""
    stop_patience: int = 3
    max_episodes: int | None = None
    """Training episodes after which no further iteration begins, as on a robot; None: no limit."""
    restore_best_weights: bool = False
    """Return the policy with the most training successes, if the last ones have clearly fewer (intervals of 95 % over
    three iterations): with few episodes per iteration, PPO can lose what it has learned."""
    start_pool_size: int = 0
    """Size of a pool of start states, from which failed starts are drawn more often; 0: every start is random."""
    eval_episodes: int = 64
    """Episodes in which the simulator evaluates the policy after each iteration, for the learning curve and the alarm
    (`embodied_rm.rl.watch.hacking_monitor`); 0: none."""
    wandb_project: str | None = None  # Weights & Biases project to which each iteration is logged too; None: none
    seed: int = 0
    takeover: TakeoverConfig = field(default_factory=TakeoverConfig)
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    hnpg: HNPGConfig = field(default_factory=HNPGConfig)
    rlpd: RLPDConfig = field(default_factory=RLPDConfig)

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise UserError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {self.algorithm!r}")
        check_wandb_project(self.wandb_project)
        check_minimum(self, 1, "iterations", "rollout_steps", "stop_patience")
        if self.max_episodes is not None:
            check_minimum(self, 1, "max_episodes")
        if not 0 <= self.critic_warmup_iterations < self.iterations:
            bounds, value = f">= 0 and below iterations={self.iterations}", self.critic_warmup_iterations
            raise UserError(f"critic_warmup_iterations must be {bounds}, got {value}")
        if not 0 < self.stop_success <= 1:
            raise UserError(f"stop_success must be in (0, 1], got {self.stop_success}")
        check_minimum(self, 0, "eval_episodes", "start_pool_size")
        if not 0 <= self.heuristic_coef < 1:
            raise UserError(f"heuristic_coef must be in [0, 1), got {self.heuristic_coef}")
        if not 0 < self.heuristic_off_at <= 1:
            raise UserError(f"heuristic_off_at must be in (0, 1], got {self.heuristic_off_at}")
        check_minimum(self, 0, "bc_kl_coef", "imitation_coef")
        if self.takeover.stall_steps:
            self.check_takeover()
        if self.archive.share:
            self.check_archive()

    def check_takeover(self) -> None:
        """Raise `UserError` if the learner cannot use the actions of a helper, or no potential shows a stall."""
        key = f"takeover.stall_steps={self.takeover.stall_steps}"
        if self.algorithm != "rlpd":
            raise UserError(
                f"{key} needs algorithm=rlpd: the policy gradient of algorithm={self.algorithm} is that of the "
                "policy's own actions"
            )
        if self.takeover.stall_steps < self.reward.score_every:
            raise UserError(f"{key} must be at least reward.score_every={self.reward.score_every}: progress is older")
        self.check_reads_progress(key)

    def check_archive(self) -> None:
        """Raise `UserError` if no potential shows a promising state, or the rule needs whole episodes."""
        key = f"archive.share={self.archive.share}"
        self.check_reads_progress(key)
        if not find_rule(self.reward.rule).per_step:
            raise UserError(
                f"{key} needs a rule that is known step by step: reward.rule={self.reward.rule} compares whole episodes"
            )

    def check_reads_progress(self, key: str) -> None:
        """Raise `UserError` if episodes have no potential, of the model or of the simulator, which a setting needs."""
        if self.reward.uses_simulator_only and find_rule(self.reward.rule).progress_source == "none":
            raise UserError(f"{key} needs progress, which reward.rule={self.reward.rule} does not read")


def success_description(reward: RewardConfig, threshold: float) -> str:
    """Return in words when an episode is a success; `threshold` is the success threshold that applies."""
    if reward.success_source == "simulator":
        return "according to the simulator"
    return f"after {reward.success_patience} predictions of success >= {threshold:.4g}"
