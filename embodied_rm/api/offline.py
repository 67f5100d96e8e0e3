"""Learn a policy from recorded episodes, good and bad, without an environment step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from embodied_rm.api.base_reward_model import BaseRewardModel
from embodied_rm.api.build_config import build_config
from embodied_rm.errors import DataError, UserError
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.offline.offline_config import OfflineConfig
from embodied_rm.rl.offline.offline_reward import OfflineReward
from embodied_rm.rl.offline.train_offline import learn_offline as learn_from_transitions
from embodied_rm.rl.offline.train_offline import make_policy
from embodied_rm.run_folder import NullReporter, Reporter, open_kept_or_temporary
from embodied_rm.types import Episode, RewardOutput

REWARD_KEYS = tuple(field.name for field in fields(OfflineReward))


def learn_offline(
    episodes: Iterable[Episode],
    model: BaseRewardModel[Any] | None = None,
    *,
    folder: str | Path | None = None,
    reporter: Reporter | None = None,
    **config: Any,
) -> GaussianPolicy:
    """Learn a policy from recorded episodes of one task, with the defaults of `embodied-rm offline`.

    Args:
        episodes: Successes and failures with `state` and `action`, as they were recorded.
        model: Reward model that scores their videos; None for `rule="sparse"` and `rule="dense"`.
        folder: Run folder, for `progress.jsonl` and checkpoints; an interrupted run continues there. None: nothing is
            kept on disk.
        reporter: Shows progress; None: nothing is shown.
        **config: Any field of `OfflineConfig` or `OfflineReward`, such as `method="cql"` or `rule="sparse"`.

    Returns:
        The policy; `policy.act(observations)` is its mean action, and `refine` takes it.

    Raises:
        UserError: For an unknown key, a value that is out of range, a rule that needs a model, or a learning that
            became non-finite.
        DataError: When an episode lacks state or action, or there are fewer than two episodes.
    """
    reward = build_config(OfflineReward, {key: value for key, value in config.items() if key in REWARD_KEYS})
    settings = build_config(OfflineConfig, {key: value for key, value in config.items() if key not in REWARD_KEYS})
    recordings = list(episodes)
    if not recordings:
        raise DataError("there are no episodes to learn from")
    predictions = None
    if reward.needs_predictions:
        if model is None:
            raise UserError(
                f"rule={reward.rule} needs a reward model that scores the videos: pass model=, or rule=sparse"
            )
        predictions = [predict(model, episode) for episode in recordings]
    transitions = reward.make_transitions(recordings, predictions, settings.gamma)
    policy = make_policy(transitions, settings)
    with open_kept_or_temporary(folder) as run:
        learn_from_transitions(policy, transitions, settings, run, reporter or NullReporter())
    return policy


def predict(model: BaseRewardModel[Any], episode: Episode) -> RewardOutput:
    """Return the predictions of a reward model for the frames of an episode."""
    known = model.input_spec.views
    views = {name: frames for name, frames in episode.views.items() if known is None or name in known}
    return model.score(views or episode.views, episode.instruction)
