"""`TabletopVecEnv`: N worlds of one task as a `gymnasium.vector.VectorEnv` that can show its cameras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from embodied_sim.action_delay import ActionDelay
from embodied_sim.arm import ACTION_DIM, ArmController
from embodied_sim.backends import make_backend
from embodied_sim.control import CONTROL_HZ, SUBSTEPS_PER_STEP, FloatArray
from embodied_sim.divergence import write_divergence
from embodied_sim.domain_randomization import Randomization
from embodied_sim.episode_init import EpisodeInitializer
from embodied_sim.holdout import Holdout, color_object_pairs_of, task_sides_of
from embodied_sim.observation import PROPRIO_DIM, build_observation
from embodied_sim.registry import make_task
from embodied_sim.render import Renderer, make_renderer, render_torch
from embodied_sim.robots import Robot, find_robot, robot_name
from embodied_sim.scene import build_scene
from embodied_sim.sim_errors import SimError, lookup
from embodied_sim.snapshot import (
    ArrayDict,
    add_prefix,
    check_same_env,
    flatten_state,
    json_to_array,
    pack_layouts,
    pack_rngs,
    select_prefix,
    unflatten_state,
    unpack_layouts,
    unpack_rngs,
)
from embodied_sim.state import SceneReader, SceneState

if TYPE_CHECKING:
    from torch import Tensor

VIEW_NAMES = ("front", "side", "wrist")
ROW_STATE_FIELDS = ("order", "side", "phrasing", "elapsed", "held")
"""Of an environment, what is counted or drawn for each row, int64 [N, ...]."""
SUCCESS_HOLD_STEPS = 5
"""Control steps for which the task must have been done without a break to count as success."""

BoolArray = npt.NDArray[np.bool_]


class TabletopVecEnv(VectorEnv[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[Any]]):
    """N tabletop worlds, stepped together at 20 Hz.

    Action: float [N, 4] in [-1, 1], displacement of the tool (4 cm a unit) and grip (-1 opens, +1 closes).
    Observation: float32 [N, D], see `observation.py`. Reward: 1 at the step in which success is first sustained.

    `terminated`: a diverged world, and with `ends_on_success` a sustained success; `truncated`: the time limit.
    Every step's infos hold, dense over rows: `success` (sustained), `progress` (float32, true step progress),
    `stage` (int64, step under way), `diverged`; with SAME_STEP also `final_obs` [N, D] (the true next observation
    of every row, before any reset) and `final_info` with the four above as they were before the reset. With
    `final_views=True` the steps in which rows end also hold `final_views`, uint8 [N, V, H, W, 3]: what the cameras of
    those rows showed before the reset, drawn then; the others are black (`_final_views` [N] says which).

    `holdout`: which colors of things, sides and phrasings are drawn. `randomize`: how else worlds differ.

    Autoreset: SAME_STEP, or DISABLED with `reset(options={"reset_mask": bool [N]})`.
    """

    def __init__(
        self,
        task: str,
        num_envs: int = 64,
        *,
        robot: str | Robot = "panda",
        views: Sequence[str] = VIEW_NAMES,
        image_size: int = 64,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        ends_on_success: bool = False,
        backend: str = "batch",
        device: str = "cpu",
        max_contacts: int = 0,
        renderer: str = "auto",
        threads: int = 0,
        randomize: Randomization | None = None,
        holdout: Holdout | None = None,
        divergence_dump_dir: Path | None = None,
        final_views: bool = False,
    ) -> None:
        for view in views:
            lookup({name: name for name in VIEW_NAMES}, view, "view")
        if autoreset_mode is AutoresetMode.NEXT_STEP:
            raise SimError("autoreset_mode must be SAME_STEP or DISABLED: with NEXT_STEP terminal views are lost")
        if final_views and autoreset_mode is not AutoresetMode.SAME_STEP:
            raise SimError("final_views needs autoreset_mode=SAME_STEP: else render_views shows them until the reset")
        if num_envs < 1:
            raise SimError(f"num_envs must be >= 1, got {num_envs}")
        self.task = make_task(task)
        self.num_envs = num_envs
        self.view_names = tuple(views)
        self.subtask_names = self.task.subtasks
        self.image_size = image_size
        self.ends_on_success = ends_on_success
        self.metadata = {"autoreset_mode": autoreset_mode, "render_modes": [], "render_fps": CONTROL_HZ}
        self.render_mode = None
        robot_spec = find_robot(robot) if isinstance(robot, str) else robot
        model = build_scene(self.task.props, robot_spec)
        self._backend = make_backend(backend, model, num_envs, threads, device, max_contacts)
        self._renderer_name, self._threads = renderer, threads
        self._arm = ArmController(self._backend, robot_spec)
        self._initializer = EpisodeInitializer(
            self._backend, self._arm, self.task, Randomization() if randomize is None else randomize
        )
        self._reader = SceneReader(self._arm, self.task.props, self.task.objects)
        self._divergence_dump_dir, self._final_views = divergence_dump_dir, final_views
        self._robot_name = robot_name(robot_spec)
        self._action_delay = ActionDelay(num_envs, ACTION_DIM, self._initializer.randomization.latency)
        self._rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence().spawn(num_envs)]
        self._holdout = Holdout() if holdout is None else holdout
        self._phrasing_indices = self._holdout.phrasing_indices(self.task)
        self._layouts = [self._holdout.sample_layout(self.task, rng) for rng in self._rngs]
        self._order = np.array([layout.object_order for layout in self._layouts], np.int64).reshape(num_envs, -1)
        self._side = np.array([layout.side_index for layout in self._layouts], np.int64)
        self._phrasing = np.full(num_envs, self._phrasing_indices[0], np.int64)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._success_steps = np.zeros(num_envs, np.int64)
        self.state = self._start_state = self._read()
        self._define_spaces()

    def _define_spaces(self) -> None:
        size = self._observe().shape[1]
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space = gym.spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def instructions(self) -> tuple[str, ...]:
        """The instruction of every row's present episode."""
        return tuple(
            self.task.instruction(layout, int(phrasing))
            for layout, phrasing in zip(self._layouts, self._phrasing, strict=True)
        )

    @property
    def goals(self) -> tuple[str, ...]:
        """What every row's instruction wants, see `Task.goal`."""
        return tuple(self.task.goal(layout) for layout in self._layouts)

    def episode_metadata(self, row: int) -> dict[str, str]:
        """What was drawn for that row's present episode: `scene`, its fingerprint; `objects` in their colors and
        `side`, as a `Holdout` names them; `phrasing`, counted from the end: -1 is the task's last template. Sentences,
        joined by " | ": `paraphrases` of the instruction; `opposites` and `fulfils`, see `Task`."""
        task, layout = self.task, self._layouts[row]
        templates = (*(task.templates[i] for i in self._phrasing_indices), *task.paraphrases)
        return {
            "scene": f"{task.name} {layout.scene_hash}",
            "objects": ", ".join(color_object_pairs_of(task, layout)),
            "side": ", ".join(task_sides_of(task, layout)),
            "phrasing": str(int(self._phrasing[row]) - len(task.templates)),
            "paraphrases": " | ".join(task.format_instructions(templates, layout)),
            "opposites": " | ".join(task.format_instructions(task.reversed_instructions, layout)),
            "fulfils": " | ".join(task.format_instructions(task.implied_goals, layout)),
        }

    @property
    def proprio_size(self) -> int:
        """Leading columns of an observation that are of the robot itself."""
        return PROPRIO_DIM

    @property
    def max_episode_steps(self) -> int:
        """Time limit of an episode, control steps."""
        return self.task.max_episode_steps

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Start new episodes in every row, or in those of `options["reset_mask"]` (bool [N]).

        With a seed, row i gets its own stream (seed + i for an int), so row i's episodes do not depend on the others.
        """
        mask = np.ones(self.num_envs, np.bool_)
        if options and "reset_mask" in options:
            mask = np.asarray(options["reset_mask"])
            if mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
                raise SimError(f"reset_mask must be bool [{self.num_envs}], got {mask.dtype} {list(mask.shape)}")
        if seed is not None:
            self._seed(seed, mask)
        self._reset_rows(np.flatnonzero(mask))
        return self._observe(), self._info(np.zeros(self.num_envs, np.bool_))

    def _seed(self, seed: int | Sequence[int], mask: BoolArray) -> None:
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int | np.integer) else list(seed)
        if len(seeds) != self.num_envs:
            raise SimError(f"seed must be one int or {self.num_envs} of them, got {len(seeds)}")
        for row in np.flatnonzero(mask):
            self._rngs[row] = np.random.default_rng(int(seeds[row]))

    def _reset_rows(self, rows: npt.NDArray[np.int64]) -> None:
        if not len(rows):
            return
        for row in rows:
            self._layouts[row] = layout = self._holdout.sample_layout(self.task, self._rngs[row])
            self._order[row], self._side[row] = layout.object_order, layout.side_index
            self._phrasing[row] = self._phrasing_indices[self._rngs[row].integers(len(self._phrasing_indices))]
        self._action_delay.delay[rows] = self._initializer.apply_randomization(
            {int(row): self._rngs[row] for row in rows}
        )
        self._initializer.initialize(rows, [self._layouts[row] for row in rows])
        self._elapsed[rows] = self._success_steps[rows] = 0
        self._arm.hold_position(rows)
        self._action_delay.reset(rows)
        state = self._read()
        mask = np.isin(np.arange(self.num_envs), rows)
        self._start_state = self._start_state.replace_rows(mask, state)
        self.state = state

    def _read(self) -> SceneState:
        return self._reader.read(self._order, self._side)

    def _observe(self) -> npt.NDArray[np.float32]:
        return build_observation(self.state, self.task.observed_points, self.task.extra_observation(self.state))

    def step(
        self, actions: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]:
        """One control step (50 ms) in every row."""
        self._arm.apply_action(self._action_delay.push(self._validate_actions(actions)))
        diverged = (
            self._backend.step(SUBSTEPS_PER_STEP)
            if self._divergence_dump_dir is None
            else self._step_and_dump(self._divergence_dump_dir)
        )
        self._elapsed += 1
        self.state = self._read()
        self._success_steps = np.where(self.task.success(self.state) & ~diverged, self._success_steps + 1, 0)
        info = self._info(diverged)
        reward = (self._success_steps == SUCCESS_HOLD_STEPS).astype(np.float64)
        terminated = diverged | (info["success"] & self.ends_on_success)
        truncated = (self._elapsed >= self.max_episode_steps) & ~terminated
        obs = self._observe()
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
            obs, info = self._autoreset(terminated | truncated, obs, info)
        return obs, reward, terminated, truncated, info

    def _validate_actions(self, actions: npt.NDArray[np.float32]) -> FloatArray:
        """Actions as float64, clipped to the action space; refused when of another shape or not finite."""
        values = np.asarray(actions, np.float64)
        if values.shape != (self.num_envs, ACTION_DIM):
            raise SimError(f"actions must have shape [{self.num_envs}, {ACTION_DIM}], got {list(values.shape)}")
        if not np.isfinite(values).all():
            row, dim = np.argwhere(~np.isfinite(values))[0]
            raise SimError(f"action of environment {row} is {values[row, dim]} in dimension {dim}; it must be finite")
        return np.clip(values, -1.0, 1.0)

    def _step_and_dump(self, dump_dir: Path) -> BoolArray:
        """A step of the physics that writes down the worlds that diverge in it, with what they were commanded."""
        already_diverged, ctrl = self._backend.divergence_reasons(), self._backend.ctrl.copy()
        diverged = self._backend.step(SUBSTEPS_PER_STEP)
        for row, reason in self._backend.divergence_reasons().items():
            if row not in already_diverged:
                write_divergence(dump_dir, self._backend, row, ctrl[row], reason, self.task.name, self._robot_name)
        return diverged

    def _info(self, diverged: BoolArray) -> dict[str, Any]:
        subtask, progress = self.task.progress(self.state, self._start_state)
        return {
            "success": self._success_steps >= SUCCESS_HOLD_STEPS,
            "progress": progress.astype(np.float32),
            "stage": subtask.astype(np.int64),
            "diverged": diverged,
        }

    def _autoreset(
        self, done: BoolArray, obs: npt.NDArray[np.float32], info: dict[str, Any]
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        final = {"final_obs": obs, "_final_obs": done, "final_info": info, "_final_info": done}
        if done.any():
            if self._final_views:
                final |= {"final_views": self._render_masked(done), "_final_views": done}
            self._reset_rows(np.flatnonzero(done))
            reset_info = self._info(np.zeros(self.num_envs, np.bool_))
            info = {name: np.where(done, reset_info[name], info[name]) for name in info}
        return self._observe(), {**info, **final}

    def _render_masked(self, mask: BoolArray) -> npt.NDArray[np.uint8]:
        """The views [N, V, H, W, 3] of the rows `seen`, black for the others."""
        views = self.render_views(np.flatnonzero(mask))
        all_views = np.zeros((self.num_envs, *views.shape[1:]), np.uint8)
        all_views[mask] = views
        return all_views

    @cached_property
    def renderer(self) -> Renderer:
        """Made at the first image, so that an environment nobody looks at needs no GL."""
        size = (self.image_size, self.image_size)
        return make_renderer(self._renderer_name, self._backend, self.view_names, size, self._threads)

    def render_views(self, rows: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.uint8]:
        """What the cameras of `rows` (default: all) show now: uint8 [n, V, H, W, 3]."""
        return self.renderer.render(np.arange(self.num_envs) if rows is None else np.asarray(rows))

    def render_tensor(self, rows: npt.NDArray[np.int64] | None = None) -> Tensor:
        """`render_views` as a tensor, on the device where the images are drawn: they do not cross the host."""
        return render_torch(self.renderer, np.arange(self.num_envs) if rows is None else np.asarray(rows))

    def physics_state(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """qpos [N, nq], mocap_pos [N, nmocap, 3] and mocap_quat [N, nmocap, 4] of the worlds now, for a renderer of
        one's own. Live: read, do not write."""
        return self._backend.qpos, self._backend.mocap_pos, self._backend.mocap_quat

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled scene. Read only."""
        return self._backend.model

    def snapshot(self) -> ArrayDict:
        """Everything that the episodes under way, and those that follow, depend on: arrays by name, for `restore`.

        Raises `SimError` while a world that diverged has not been reset.
        """
        if self._backend.divergence_reasons():
            raise SimError(
                f"world {min(self._backend.divergence_reasons())} has diverged: reset it before taking a snapshot"
            )
        return self._snapshot_arrays()

    def _snapshot_arrays(self) -> ArrayDict:
        return {
            **add_prefix("physics", self._backend.snapshot()),
            **add_prefix("line", self._action_delay.snapshot()),
            **add_prefix("start", flatten_state(self._start_state)),
            **{name: getattr(self, f"_{name}").copy() for name in ROW_STATE_FIELDS},
            "commanded": self._arm.target_pos.copy(),
            "of": json_to_array([self.task.name, self._robot_name]),
            "streams": pack_rngs(self._rngs),
            "layouts": pack_layouts(self._layouts),
        }

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Go on from what `snapshot` of such an environment gave, bit for bit on the CPU; the observation then.

        Raises `SimError` for one of another environment.
        """
        check_same_env(self._snapshot_arrays(), snapshot)
        self._backend.restore(select_prefix("physics", snapshot))
        self._action_delay.restore(select_prefix("line", snapshot))
        for name in ROW_STATE_FIELDS:
            getattr(self, f"_{name}")[...] = snapshot[name]
        self._arm.target_pos[...] = snapshot["commanded"]
        self._rngs, self._layouts = unpack_rngs(snapshot["streams"]), unpack_layouts(snapshot["layouts"])
        self._start_state, self.state = unflatten_state(select_prefix("start", snapshot)), self._read()
        return self._observe()

    def close_extras(self, **kwargs: Any) -> None:
        """Free the renderer and the worlds."""
        if "renderer" in self.__dict__:
            self.renderer.close()
        self._backend.close()
