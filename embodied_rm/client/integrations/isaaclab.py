"""A learned reward as a term of Isaac Lab's managers, from the pictures of its cameras.

Not run against Isaac Lab: written to the interface that versions 2.3 and 3.0 document. The configuration is that of
`mjlab.MjlabRewardTerm`. Isaac Lab multiplies rewards by its step in seconds.

Isaac Lab draws after the last step of physics, before it rewards: at a terminal state, its cameras show that state.
After a reset they show the new episode only if the environment is drawn again, so the term draws it.

Without a term, `LearnedReward` wraps an Isaac Lab 3 environment whose configuration has `compute_final_obs=True`.
"""

from __future__ import annotations

from typing import Any

from isaaclab.managers import ManagerTermBase

from .manager_term import ManagerTerm, RewardTerm, SuccessTerm


class IsaacLabCameras(ManagerTerm, ManagerTermBase):
    """A term that reads Isaac Lab's cameras."""

    def __init__(self, cfg: Any, env: Any) -> None:
        """As `ManagerTerm`; `ValueError` if a camera is not drawn at the end of every step."""
        ManagerTermBase.__init__(self, cfg, env)
        super().__init__(cfg, env)
        interval, decimation = env.cfg.sim.render_interval, env.cfg.decimation
        if decimation % interval:
            raise ValueError(
                f"sim.render_interval={interval} must divide decimation={decimation}: else a step ends undrawn"
            )
        for name, camera in self._cameras.items():
            if camera.cfg.update_period > env.step_dt:
                period = camera.cfg.update_period
                raise ValueError(
                    f"the camera of view {name!r} is drawn every {period} s, and a step is {env.step_dt} s"
                )

    def draw(self) -> None:
        """Nothing: the cameras show the states that the step led to."""

    def read_image(self, camera: Any) -> Any:
        """Return the images, uint8 [N, H, W, 3]: of a tensor, or of the array around it of version 3."""
        image = camera.data.output["rgb"]
        return getattr(image, "torch", image)

    def reset(self, env_ids: Any = None) -> None:
        """Draw the first states of these rows, None: of all, and open episodes at them."""
        super().reset(env_ids)
        self._env.scene.write_data_to_sim()
        self._env.sim.forward()
        for _ in range(max(1, self._env.cfg.num_rerenders_on_reset)):
            self._env.sim.render()
        self.open_episodes()


class IsaacLabRewardTerm(IsaacLabCameras, RewardTerm):
    """Progress as a reward term; other terms decide when episodes end."""


class IsaacLabSuccessTerm(IsaacLabCameras, SuccessTerm):
    """Success of the model as the last termination term; `success_term_reward` is the reward term with it."""
