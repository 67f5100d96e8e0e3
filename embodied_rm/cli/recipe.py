"""How one refinement of a comparison comes about: recorded, cloned, refined."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from embodied_rm.cli.commands import clone, collect, refine
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rl.envs.reward_config import RewardConfig
from sim.registry import make_task

GUIDING = ("guidance", "guided_until")
"""Settings of refinement that mean nothing to rules that do not shape."""
LOOKING_ON = ("wandb", "labeller", "labelling")
"""Those of whoever looks on and changes nothing."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides a cell but for the model. Its paths are inside the folders of its task and of its seed."""

    collect: collect.CollectConfig
    clone: clone.CloneCommand
    refine: refine.RefineCommand

    @property
    def task(self) -> str:
        """The name of the task, wherever its file lies."""
        return make_task(self.refine.task).name

    @property
    def seed_folder(self) -> str:
        """Where its demonstrations are recorded and its policy is cloned."""
        return f"{self.task}/{self.refine.seed}"

    @property
    def name(self) -> str:
        """What the ledger calls the cell, and its folder."""
        return f"{self.seed_folder}/{self.refine.reward.rule}"

    def decided(self, model: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """All that decides the cloned policy, and all that decides the cell; `model`: digest of the reward model, which
        counts where one is asked."""
        source = Path(self.refine.task)
        named = {"task": self.task, "source": source.read_text() if source.suffix == ".py" else None}
        where = {"task": None, "checkpoint": None}  # wherever they lie
        asked = self.clone.aligned or self.clone.sees != "state"
        recorded = {**asdict(self.collect), "tasks": None}
        policy = {
            **named,
            "collect": recorded,
            "clone": {**asdict(self.clone), **where},
            "model": model if asked else None,
        }
        paid = asked or not self.refine.reward.of_simulator
        guide = {} if find_rule(self.refine.reward.rule).shapes else dict.fromkeys(GUIDING)
        improve = {**asdict(self.refine), **guide, **where, **dict.fromkeys(LOOKING_ON)}
        if self.refine.judge.layout is None:
            improve["judge"] = None
        return policy, {**policy, "refine": improve, "model": model if paid else None}


def paid_by(rule: str, reward: RewardConfig) -> RewardConfig:
    """The reward by a rule; what is paid from the simulator's state is also told its success, and the state of every
    step."""
    if find_rule(rule).by != "simulator":
        return replace(reward, rule=rule)
    return replace(reward, rule=rule, success="simulator", score_every=1)
