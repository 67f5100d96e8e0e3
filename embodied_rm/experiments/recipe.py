"""The recipe of one refinement of a comparison: record, clone, refine."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from embodied_rm.api.in_context import DemonstrationKeys
from embodied_rm.client.shaping import DEFAULT_SUCCESS_THRESHOLD
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rl.refine_config import USES_RECORDED
from embodied_rm.tabletop import clone_policy, collect_episodes
from embodied_rm.tabletop.refine_command import RefineCommand
from embodied_sim.registry import make_task

HEURISTIC_KEYS = ("heuristic_coef", "heuristic_off_at")
"""Settings of refinement without effect for rules that are not potential-based."""
RESULT_NEUTRAL_KEYS: tuple[str, ...] = ("wandb_project", "labeler", "labeling")
"""Settings of refinement that never affect the result."""

DEMONSTRATION_KEYS = tuple(key.name for key in fields(DemonstrationKeys))
"""Settings of refinement that only select the reward model, whose digest stands for them."""


@dataclass(frozen=True, kw_only=True)
class RefinementRecipe:
    """Everything that decides a cell, except for the reward model. Paths are relative to its task and seed folder."""

    collect: collect_episodes.CollectConfig
    clone: clone_policy.CloneCommand
    refine: RefineCommand

    @property
    def task(self) -> str:
        """Name of the task, independent of the path of its file."""
        return make_task(self.refine.task).name

    @property
    def seed_folder(self) -> str:
        """Folder of the demonstrations and the cloned policy."""
        return f"{self.task}/{self.refine.seed}"

    @property
    def name(self) -> str:
        """Name of the cell in the results cache, and its folder."""
        return f"{self.seed_folder}/{self.refine.reward.rule}"

    def cache_settings(self, model_digest: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return everything that decides the cloned policy, and everything that decides the cell.

        `model_digest` is included only if the policy or the cell uses the reward model.
        """
        source = Path(self.refine.task)
        task_settings = {"task": self.task, "source": source.read_text() if source.suffix == ".py" else None}
        ignored_paths = {"task": None, "checkpoint": None}  # paths do not matter
        cloning_uses_model = self.clone.reward_weighted or self.clone.obs_mode != "state"
        policy_settings = {
            **task_settings,
            "collect": {**drop_keys(asdict(self.collect), ("port",)), "tasks": None},
            "clone": {**self.clone.cell_settings(), **ignored_paths},
            "model": model_digest if cloning_uses_model else None,
        }
        cell_uses_model = cloning_uses_model or not self.refine.reward.uses_simulator_only
        ignored_keys = RESULT_NEUTRAL_KEYS
        if not find_rule(self.refine.reward.rule).is_potential_based:
            ignored_keys += HEURISTIC_KEYS
        if self.refine.judge.type is None:
            ignored_keys += ("judge",)
        used_settings = {**asdict(self.refine), "judge": self.refine.judge.scoring_settings()}
        refine_settings = {**used_settings, **ignored_paths, **dict.fromkeys(ignored_keys)}
        unused_keys = (*DEMONSTRATION_KEYS, *unused_algorithm_keys(self.refine.algorithm))
        unused_keys += ("program",) if self.refine.program is None else ()
        unused_keys += () if self.refine.teach.every else ("teach",)
        unused_keys += () if self.refine.takeover.stall_steps else ("takeover",)
        refine_settings["takeover"] = drop_keys(refine_settings["takeover"], ("port",))
        unused_keys += () if self.refine.archive.share else ("archive",)
        unused_keys += () if self.refine.restore_best_weights else ("restore_best_weights",)
        unused_keys += () if self.refine.max_episodes is not None else ("max_episodes",)
        refine_settings = drop_keys(refine_settings, unused_keys)
        threshold = record_threshold(self.refine.reward.success_threshold)
        later_keys = () if self.refine.reward.success_in_each_view else ("success_in_each_view",)
        refine_settings["reward"] = drop_keys(refine_settings["reward"], later_keys) | {"success_threshold": threshold}
        used_model = model_digest if cell_uses_model else None
        return policy_settings, {**policy_settings, "refine": refine_settings, "model": used_model}


def drop_keys(settings: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Return the settings without some keys."""
    return {name: value for name, value in settings.items() if name not in keys}


def unused_algorithm_keys(algorithm: str) -> tuple[str, ...]:
    """Return the settings of refinement that do not decide a cell of an algorithm.

    A cell's recorded episodes are those of its own folder. Cells of PPO were stored when it was the only algorithm.
    """
    keys = ["recorded_data", *(name for name in USES_RECORDED if name != algorithm)]
    return tuple(keys) if algorithm in USES_RECORDED else (*keys, "algorithm")


def record_threshold(threshold: float | None) -> float | str:
    """Return the success threshold as cells record it: that of the model as the default, which was a number before.

    The digest of the model decides its value. The same number, set by the user, is recorded as text.
    """
    if threshold is None:
        return DEFAULT_SUCCESS_THRESHOLD
    return str(threshold) if threshold == DEFAULT_SUCCESS_THRESHOLD else threshold


def with_rule(rule: str, reward: RewardConfig) -> RewardConfig:
    """Return the reward config with a rule; rules of the simulator's state also use its success, at every step."""
    if find_rule(rule).progress_source != "simulator":
        return replace(reward, rule=rule)
    return replace(reward, rule=rule, success_source="simulator", score_every=1)


def clone_demonstrations(recipe: RefinementRecipe, pipeline: Pipeline) -> Path:
    """Record and clone, unless that is finished; return the folder of the policy."""
    root, folder = pipeline.run.path / recipe.seed_folder, recipe.seed_folder
    pipeline.run_command("collect", f"{folder}/demonstrations", collect_episodes.COMMAND, recipe.collect)
    clone = replace(recipe.clone, data=root / recipe.clone.data)
    pipeline.run_command("clone", f"{folder}/clone", clone_policy.COMMAND, clone)
    return root / recipe.refine.policy
