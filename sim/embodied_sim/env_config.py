"""Settings of the simulated environments."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gymnasium.vector import AutoresetMode

from embodied_sim.domain_randomization import Randomization
from embodied_sim.holdout import Holdout
from embodied_sim.robots import Robot
from embodied_sim.sim_errors import SimError, lookup

VIEW_NAMES = ("front", "side", "wrist")


@dataclass(frozen=True, kw_only=True)
class VecEnvConfig:
    """Settings of a `TabletopVecEnv`. Raises `SimError` for an unknown view, and for settings that do not combine."""

    num_envs: int = 64
    robot: str | Robot = "panda"  # name of a bundled arm, path of a MuJoCo XML file, or a `Robot`
    views: Sequence[str] = VIEW_NAMES  # cameras, in the order of the rendered views
    image_size: int = 64  # width and height of the rendered views, pixels
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP  # SAME_STEP or DISABLED
    ends_on_success: bool = False  # terminate an episode at its first sustained success
    backend: str = "batch"  # physics engine: "batch" or "warp"
    device: str = "cpu"  # device of the physics: "cpu" or "cuda"
    max_contacts: int = 0  # contacts per environment for which "warp" allocates memory; 0: chosen from the scene
    renderer: str = "auto"
    threads: int = 0  # CPU threads of physics and renderer; 0: one per processor
    randomize: Randomization | None = None  # domain randomization; None: none
    holdout: Holdout | None = None  # colors, sides and phrasings that episodes are drawn from; None: all
    divergence_dump_dir: Path | None = None  # folder for dumps of environments that diverge; None: no dumps
    final_views: bool = False  # add the last views of ended episodes to the infos; needs SAME_STEP

    def __post_init__(self) -> None:
        for view in self.views:
            lookup(dict.fromkeys(VIEW_NAMES), view, "view")
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            raise SimError("autoreset_mode must be SAME_STEP or DISABLED: with NEXT_STEP terminal views are lost")
        if self.final_views and self.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise SimError("final_views needs autoreset_mode=SAME_STEP: else render_views shows them until the reset")
        if self.num_envs < 1:
            raise SimError(f"num_envs must be >= 1, got {self.num_envs}")
