"""A learned reward as a term of mjlab's managers, from the pictures of a `CameraSensor`.

    def make_client():
        return erm.LocalClient(erm.load_reward_model())

    rewards = {
        "learned": RewardTermCfg(
            func=MjlabRewardTerm,
            weight=1.0,
            params={
                "make_client": make_client,
                "cameras": {"front": "front_camera"},
                "instruction": "open the drawer",
                "shaping": ShapingConfig(gamma=0.99),
            },
        )
    }

mjlab multiplies rewards by its step in seconds unless `scale_rewards_by_dt=False`; a constant factor keeps shaping
exact. It draws once per step, after the resets. The term draws once more, before them, and opens an episode at mjlab's
own picture of the row after its reset, commands included. List the term last: the terms after it read positions that
are newer by one step of physics.
"""

from __future__ import annotations

from typing import Any

from .manager_term import ManagerTerm, RewardTerm, SuccessTerm, find_terms


class MjlabCameras(ManagerTerm):
    """A term that draws by mjlab's cameras."""

    def draw(self) -> None:
        """Update the poses, which mjlab's physics leave one of its steps behind, and draw them.

        The images that this overwrites are the first ones of new episodes, of other terms too.
        """
        for term in find_terms(self._env):
            term.open_episodes()
        self._env.sim.forward()
        self._env.sim.sense()

    def read_image(self, camera: Any) -> Any:
        """Return the images of the last drawing, uint8 [N, H, W, 3]."""
        return camera.data.rgb


class MjlabRewardTerm(MjlabCameras, RewardTerm):
    """Progress as a reward term; other terms decide when episodes end."""


class MjlabSuccessTerm(MjlabCameras, SuccessTerm):
    """Success of the model as the last termination term; `success_term_reward` is the reward term with it."""
