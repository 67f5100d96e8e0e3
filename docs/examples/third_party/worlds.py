"""Three worlds of others: SO-101 picks a cube (lerobot-env-so101), and Lift and Door of robosuite."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import experts
import gymnasium as gym
import mujoco
import numpy as np

IMAGE_SIZE = 64
MAX_EPISODE_STEPS = {"so101": 45, "lift": 60, "door": 100}  # the expert of Lift takes about 31, of Door 62
HIDDEN_LINKS = (*(f"robot0_link{number}" for number in range(6)), "pedestal", "mount0_base")
HIDDEN_GROUP = 5
MOVED_AXES = [0, 1, 2, 5, 6]  # of robosuite's actions: x, y, z, the angle around the vertical, and the fingers
GRID_M = 1.0  # side of the squares that a plane is drawn with; a finer one takes most of the rendering time
HULL_VERTICES = 64  # of a link of SO-101, whose meshes have 320,000 triangles
MAX_REACH_M = 0.3  # further away, the arm of SO-101 cannot point straight down


@dataclass(frozen=True)
class Camera:
    """A camera around a point of the scene."""

    lookat: tuple[float, float, float]
    distance: float
    azimuth: float
    elevation: float


@dataclass(frozen=True)
class World:
    """A task: how it is made, drawn, asked for and solved."""

    make_env: Callable[[], gym.Env]
    expert: Callable[[gym.Env, np.random.Generator], experts.Expert]
    instruction: str
    success_key: str
    cameras: dict[str, Camera]
    model_of: Callable[[gym.Env], tuple[Any, Any]]  # the MuJoCo model and data of an environment
    geom_groups: tuple[int, ...]
    phase_names: tuple[str, ...]  # of the expert
    make_drawing: Callable[[], Any] | None = (
        None  # a MuJoCo model with the same joints, to draw; None: that of the task
    )


class Painter:
    """Draws an environment from the cameras of its world; one renderer for all environments of a kind."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._model: Any = None
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = [group in world.geom_groups for group in range(6)]
        self._option.flags[mujoco.mjtVisFlag.mjVIS_CONVEXHULL] = world.make_drawing is not None

    def close(self) -> None:
        """Free the renderer, on the thread that made it: the garbage collector may run on another, and crash there."""
        if self._model is not None:
            self._renderer.close()

    def __call__(self, env: gym.Env) -> dict[str, np.ndarray]:
        """Return view -> uint8 [H, W, 3]."""
        model, data = self.world.model_of(env)
        if self._model is None:
            self._open(model if self.world.make_drawing is None else self.world.make_drawing())
        self._data.qpos[:] = data.qpos
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)
        return {view: self._draw(camera) for view, camera in self.world.cameras.items()}

    def _open(self, model: Any) -> None:
        self._model = model = copy.copy(model)
        hide_links(model)
        model.vis.quality.offsamples = model.vis.quality.shadowsize = 0
        model.geom_size[model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE, 2] = GRID_M
        self._data, self._renderer = mujoco.MjData(model), mujoco.Renderer(model, IMAGE_SIZE, IMAGE_SIZE)
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0

    def _draw(self, camera: Camera) -> np.ndarray:
        free = mujoco.MjvCamera()
        free.lookat[:], free.distance = camera.lookat, camera.distance
        free.azimuth, free.elevation = camera.azimuth, camera.elevation
        self._renderer.update_scene(self._data, camera=free, scene_option=self._option)
        return self._renderer.render().copy()


def hide_links(model: Any) -> None:
    """Hide the links of robosuite's arm that are far from its hand: they take three quarters of the time."""
    for geom in range(model.ngeom):
        if model.body(model.geom_bodyid[geom]).name.endswith(HIDDEN_LINKS):
            model.geom_group[geom] = HIDDEN_GROUP


def make_so101() -> gym.Env:
    import lerobot_env_so101  # noqa: F401  registers the environment

    options = {"random_block_position": True, "action_scale": 0.025, "top_down_ik": True, "jaw_pads": True}
    env = gym.make(
        "lerobot_env_so101/SO101PickCube-v0",
        max_episode_steps=MAX_EPISODE_STEPS["so101"],
        disable_env_checker=True,
        **options,
    )
    return WithinReach(env)


class WithinReach(gym.Wrapper):
    """SO-101 with starts that its arm can reach."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Draw starts until the cube is near enough."""
        observation, infos = self.env.reset(seed=seed, options=options)
        while observation["environment_state"][0] > MAX_REACH_M:
            observation, infos = self.env.reset(options=options)
        return observation, infos


def drawing_of_so101() -> Any:
    """Return its scene with simple convex hulls of the meshes."""
    import lerobot_env_so101

    spec = mujoco.MjSpec.from_file(str(Path(lerobot_env_so101.__file__).parent / "assets" / "pick_scene.xml"))
    for mesh in spec.meshes:
        mesh.maxhullvert = HULL_VERTICES
    return spec.compile()


def model_of_so101(env: gym.Env) -> tuple[Any, Any]:
    world: Any = env.unwrapped
    return world.model, world.data


class RobosuiteEnv(gym.Env):
    """A task of robosuite as a Gymnasium environment: proprioception and objects, and its own check of success.

    Actions are `MOVED_AXES` of the hand's pose and the fingers: no task needs the other two angles, and the exploration
    noise of a policy would tilt the hand, which no demonstration corrects.
    """

    def __init__(self, task: str) -> None:
        import robosuite

        self.env = robosuite.make(
            task,
            robots="Panda",
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            control_freq=10,
            ignore_done=True,
            hard_reset=False,  # a third of the time went into loading the model again at each reset
        )
        low, high = (limit[MOVED_AXES].astype(np.float32) for limit in self.env.action_spec)
        self.action_space = gym.spaces.Box(low, high)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, self._numbers(self.env.reset()).shape)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        from embodied_rm.client.integrations.robosuite import seed_task  # by robosuite

        super().reset(seed=seed)
        if seed is not None:
            seed_task(self.env, self.np_random)
        return self._numbers(self.env.reset()), {}

    def step(self, action: Any) -> Any:
        full_action = np.zeros(self.env.action_dim)
        full_action[MOVED_AXES] = action
        self.observation, reward, _, _ = self.env.step(full_action)
        return self._numbers(self.observation), reward, False, False, {"success": bool(self.env._check_success())}

    def _numbers(self, observation: dict[str, Any]) -> np.ndarray:
        self.observation = observation
        keys = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object-state")
        return np.concatenate([np.ravel(observation[key]) for key in keys]).astype(np.float32)


def make_robosuite(task: str) -> gym.Env:
    name = f"third_party/{task}-v0"
    if name not in gym.registry:
        entry_point, steps = f"{__name__}:RobosuiteEnv", MAX_EPISODE_STEPS[task.lower()]
        gym.register(name, entry_point, max_episode_steps=steps, disable_env_checker=True, kwargs={"task": task})
    return gym.make(name)


def model_of_robosuite(env: gym.Env) -> tuple[Any, Any]:
    world: Any = env.unwrapped
    sim = world.env.sim
    return sim.model._model, sim.data._data


LIFT_NAMES = ("reach the cube", "go down to the cube", "grasp the cube", "lift the cube")
WORLDS = {
    "so101": World(
        make_env=make_so101,
        expert=experts.so101_expert,
        instruction="lift the cube",
        success_key="succeed",
        cameras={
            "front": Camera((0.28, 0.0, 0.07), 0.55, 150, -25),
            "side": Camera((0.28, 0.0, 0.07), 0.55, 250, -20),
        },
        model_of=model_of_so101,
        geom_groups=(0, 3),
        phase_names=LIFT_NAMES,
        make_drawing=drawing_of_so101,
    ),
    "lift": World(
        make_env=partial(make_robosuite, "Lift"),
        expert=experts.robosuite_expert,
        instruction="lift the cube",
        success_key="success",
        phase_names=LIFT_NAMES,
        cameras={
            "front": Camera((0.0, 0.0, 0.88), 0.5, 180, -30),
            "side": Camera((0.0, 0.0, 0.88), 0.5, 110, -20),
        },
        model_of=model_of_robosuite,
        geom_groups=(1,),
    ),
    "door": World(
        make_env=partial(make_robosuite, "Door"),
        expert=experts.robosuite_expert,
        instruction="open the door",
        success_key="success",
        phase_names=("reach the handle", "press the handle", "hook the handle", "unlatch the door", "pull the door"),
        cameras={
            "front": Camera((-0.15, -0.25, 1.05), 0.9, 235, -20),
            "side": Camera((-0.15, -0.25, 1.05), 0.9, 270, -35),
        },
        model_of=model_of_robosuite,
        geom_groups=(1,),
    ),
}
