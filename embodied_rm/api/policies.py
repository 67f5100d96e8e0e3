"""Clone a policy from demonstrations, and refine it on a learned reward."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv, VectorWrapper

from embodied_rm.api.base_reward_model import check_overwrite
from embodied_rm.api.build_config import build_config
from embodied_rm.api.learned_reward import Instruction, RewardSpec
from embodied_rm.api.progress_reward_model import ProgressRewardModel
from embodied_rm.client.instructions import resolve_instructions
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import POLICY_DIR, resolve_checkpoint
from embodied_rm.rl.cloning.bc import CloneConfig
from embodied_rm.rl.cloning.bc import clone as clone_pairs
from embodied_rm.rl.learner.demo_pairs import make_demo_pairs
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.learner.policy import load_policy as read_policy
from embodied_rm.rl.learner.policy import save_policy as write_policy
from embodied_rm.rl.offline.offline_reward import OfflineReward
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.rl.refine import refine as refine_policy
from embodied_rm.rl.refine_config import USES_RECORDED, RefineConfig
from embodied_rm.rl.refine_options import EvaluateFn, RefineOptions
from embodied_rm.rl.watch.evaluate_policy import evaluate_policy
from embodied_rm.run_folder import NullReporter, Reporter, RunFolder, open_kept_or_temporary
from embodied_rm.training.teaching import TEACH_DIR, TeachConfig, Teacher
from embodied_rm.types import Episode


def clone(
    demos: Iterable[Episode],
    *,
    ignored_columns: Sequence[int] = (),
    mirrored_columns: Sequence[int] = (),
    mirrored_actions: Sequence[int] = (),
    **config: Any,
) -> GaussianPolicy:
    """Clone a policy from demonstrations (behavior cloning), with the defaults of `embodied-rm clone`.

    Args:
        demos: Episodes with `state` and `action`; those of unknown or positive success are imitated.
        ignored_columns: Columns of `state` that the policy does not see. Without the horizontal positions in the robot
            frame, and with those relative to the tool, it acts alike everywhere and needs fewer demonstrations.
        mirrored_columns: Columns of `state` whose sign a mirror image of the scene changes. With them, mirror images of
            the demonstrations are imitated too, and `refine(algorithm="rlpd")` learns from those of its transitions.
        mirrored_actions: Components of `action` whose sign the mirror image changes.
        **config: Any field of `CloneConfig`, such as `steps=1500` or `log_std_init=-1.0`.

    Returns:
        The policy; `policy.act(observations)` is its mean action.

    Raises:
        UserError: For an unknown key or a value that is out of range.
        DataError: When no episode is a success with states and actions.
    """
    if "num_demonstrations" in config:
        raise UserError("every demonstration given is imitated: pass fewer instead of num_demonstrations")
    clone_config = build_config(CloneConfig, config)
    successes = [demo for demo in demos if demo.success is not False and demo.state is not None]
    if not successes:
        raise DataError("there is nothing to clone: no demonstration is a success with states and actions")
    pairs = make_demo_pairs(successes)
    size = pairs.observation.shape[1]
    ignored = read_columns("ignored_columns", ignored_columns)
    columns = read_columns("mirrored_columns", mirrored_columns)
    actions = read_columns("mirrored_actions", mirrored_actions)
    if bool(columns) != bool(actions):
        raise UserError("mirrored_columns and mirrored_actions describe one mirror image: name some of both, or none")
    return clone_pairs(
        pairs,
        clone_config,
        length_dims=size,
        ignored_columns=ignored,
        mirrored_columns=columns,
        mirrored_actions=actions,
    )[0]


def read_columns(name: str, columns: Iterable[Any]) -> tuple[int, ...]:
    """Return column numbers as ints; `UserError` with their name for anything else, such as a mask."""
    listed = list(columns) if isinstance(columns, Iterable) else columns
    if not isinstance(listed, list) or any(isinstance(c, bool) or not isinstance(c, Integral) for c in listed):
        raise UserError(f"{name} must list column numbers, got {columns!r}")
    return tuple(int(column) for column in listed)


def refine(
    envs: VectorEnv,
    policy: GaussianPolicy,
    *,
    recorded: Iterable[Episode] | None = None,
    teach: Mapping[str, Any] | None = None,
    eval_envs: VectorEnv | None = None,
    final_eval_episodes: int = 200,
    folder: str | Path | None = None,
    reporter: Reporter | None = None,
    **config: Any,
) -> GaussianPolicy:
    """Refine a policy on a learned reward, with the defaults of `embodied-rm refine`.

    Args:
        envs: A vector environment of `LearnedReward` with `render_views`, `view_names`, `instructions`
            and `AutoresetMode.DISABLED`, such as the simulator of this package.
        policy: The policy to start from; it is not changed.
        recorded: Episodes with states and actions, good and bad, for the algorithms hnpg and rlpd; the model scores
            their videos.
        teach: Lets the model of `envs`, which `train` returned, go on learning from the learner's episodes, labeled by
            the environment's success: any field of `TeachConfig`, such as `every=5`. `data` are episodes that it learns
            from too, with known progress. None: the model stays as it is.
        eval_envs: Environments whose own success evaluates the policy before and after. None: no evaluation.
        final_eval_episodes: Episodes of each of the two evaluations.
        folder: Run folder, for `progress.jsonl`, `metrics.json` with both success rates, and checkpoints; an
            interrupted refinement continues there. None: nothing is kept on disk.
        reporter: Shows progress; None: nothing is shown.
        **config: Any field of `RefineConfig` but `reward`, such as `iterations=30`, or `ppo={"epochs": 8}`. The default
            of `eval_episodes`, of `eval_envs` after each iteration, is 0. With
            `algorithm="rlpd"`, `takeover={"stall_steps": 20, "helper": ...}` lets a person or program act where the
            policy makes no progress (`embodied_rm.rl.envs.takeover.Helper`).

    Returns:
        The refined policy.

    Raises:
        UserError: For environments without a learned reward, a discount that differs from the reward's, an unknown
            key, a model that cannot be taught, or a learning that became non-finite.
    """
    spec = getattr(envs, "reward_spec", None)
    if not isinstance(spec, RewardSpec):
        raise UserError(f"envs must be what embodied_rm.LearnedReward returned, got {type(envs).__name__}")
    refine_config, options = read_refine_options(config, spec, recorded, eval_envs)
    reporter, model = reporter or NullReporter(), spec.model
    rewarded_envs: VectorEnv = InstructedEnv(envs.env, spec.instructions)  # type: ignore[attr-defined]
    with open_kept_or_temporary(folder) as run:
        if teach is not None:
            teacher = open_teacher(teach, spec, refine_config, run, reporter)
            options, model = replace(options, teacher=teacher), teacher.net
            rewarded_envs = teacher.record(rewarded_envs)
        result = refine_policy(
            rewarded_envs,
            copy.deepcopy(policy),
            model,
            refine_config,
            run,
            reporter,
            make_evaluation(eval_envs, final_eval_episodes, refine_config.seed),
            options,
        )
        run.write_json("metrics.json", result.metrics())
    return result.policy


def make_evaluation(eval_envs: VectorEnv | None, episodes: int, seed: int) -> EvaluateFn | None:
    """Return the evaluation of a policy in environments; None: there are none."""
    return None if eval_envs is None else partial(evaluate_policy, eval_envs, episodes=episodes, seed=seed)


def read_refine_options(
    config: dict[str, Any], spec: RewardSpec, recorded: Iterable[Episode] | None, eval_envs: VectorEnv | None
) -> tuple[RefineConfig, RefineOptions]:
    """Return the config of a refinement and what it is given beside. `UserError` for settings that do not fit."""
    refine_config, helper = read_refine_config(config, spec)
    if recorded is not None and refine_config.algorithm not in USES_RECORDED:
        raise UserError(f"recorded= is for algorithm={' or '.join(USES_RECORDED)}: set both, or neither")
    transitions = None if recorded is None else reward_transitions(list(recorded), spec)
    episodes = refine_config.eval_episodes
    if episodes and eval_envs is None:
        raise UserError(f"eval_episodes={episodes} needs eval_envs=, on which they are played")
    evaluate_iteration = make_evaluation(eval_envs, episodes, refine_config.seed) if episodes else None
    options = RefineOptions(evaluate_iteration=evaluate_iteration, recorded=transitions, helper=helper)
    return refine_config, options


def read_refine_config(config: dict[str, Any], spec: RewardSpec) -> tuple[RefineConfig, Any]:
    """Return the config of a refinement and its helper, None: it has none. `UserError` for settings that do not fit."""
    helper = None
    if isinstance(takeover := config.get("takeover"), Mapping):
        helper = takeover.get("helper")
        config["takeover"] = {name: value for name, value in takeover.items() if name != "helper"}
    refine_config = build_config(RefineConfig, {"eval_episodes": 0, **config, "reward": spec.config})
    if refine_config.ppo.gamma != spec.gamma:
        raise UserError(
            f"the learner's discount is ppo.gamma={refine_config.ppo.gamma}, the reward's is gamma={spec.gamma}: "
            "shaping by another discount would change the optimal policy"
        )
    return refine_config, helper


def load_policy(folder: str | Path) -> GaussianPolicy:
    """Load a policy of `save_policy`, or of a run of `embodied-rm clone`, `offline` or `refine`.

        policy = embodied_rm.load_policy("runs/refine/lift")
        action = policy.act(observation)  # float32 [N, D] -> [N, A]: the mean action, without exploration noise

    Args:
        folder: Folder of the policy, or run folder.

    Returns:
        The policy.

    Raises:
        UserError: When there is none.
        CheckpointError: When it is damaged.
    """
    return read_policy(resolve_checkpoint(Path(folder), POLICY_DIR))


def save_policy(policy: GaussianPolicy, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a policy: safetensors and a JSON manifest.

    Args:
        policy: A policy of `clone`, `learn_offline`, `dpo` or `refine`.
        folder: Where to write it; `load_policy` and the key `policy=` of commands read it.
        overwrite: Replace the policy that is in the folder.

    Returns:
        The folder.

    Raises:
        UserError: When the folder holds something and `overwrite` is not set.
    """
    check_overwrite(Path(folder), overwrite=overwrite)
    write_policy(folder, policy)
    return Path(folder)


def open_teacher(
    teach: Mapping[str, Any], spec: RewardSpec, config: RefineConfig, run: RunFolder, reporter: Reporter
) -> Teacher:
    """Return the teacher of the reward model, in a folder of the run. Raises `UserError` if it cannot be taught."""
    if not isinstance(spec.model, ProgressRewardModel):
        raise UserError(f"teach= trains a model of embodied_rm.train, and this one is a {type(spec.model).__name__}")
    TeachConfig.check_algorithm(config.algorithm)
    own_data = list(teach.get("data", ()))
    teach_config = build_config(TeachConfig, {name: value for name, value in teach.items() if name != "data"})
    if not teach_config.every:
        raise UserError("teach= needs every=<iterations between two rounds>, at least 1")
    patience = teach_config.success_frames(spec.config.score_every, spec.config.success_patience)
    folder, seed = run.path / TEACH_DIR, config.seed
    return Teacher(spec.model.net, teach_config, folder, reporter, own_data=own_data, patience=patience, seed=seed)


def reward_transitions(episodes: list[Episode], spec: RewardSpec) -> OfflineTransitions:
    """Return the transitions of recorded episodes, with the rewards of the environments that they are learned with."""
    reward = OfflineReward.from_refinement(spec.config)
    known = spec.model.input_spec.views
    if known is not None:
        episodes = [
            replace(episode, views={name: frames for name, frames in episode.views.items() if name in known})
            for episode in episodes
        ]
    predictions = score_episodes(spec.model, episodes) if reward.needs_predictions else None
    return reward.make_transitions(episodes, predictions, spec.gamma)


class InstructedEnv(VectorWrapper):
    """A vector environment that is asked for other instructions than its own."""

    def __init__(self, env: VectorEnv, instructions: Instruction) -> None:
        """`instructions`: one for all rows, one per row, or a function of the environment."""
        super().__init__(env)
        self._instructions = instructions

    def __getattr__(self, name: str) -> Any:
        """Cameras, time limit and snapshots are those of the environment."""
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def instructions(self) -> tuple[str, ...]:
        """The instruction of each row, now."""
        return tuple(resolve_instructions(self._instructions, self.env, self.num_envs))
