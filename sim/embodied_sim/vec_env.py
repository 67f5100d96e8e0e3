"""`TabletopVecEnv`: N environments of one task as a `gymnasium.vector.VectorEnv` with cameras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from embodied_sim import snapshot as snapshots
from embodied_sim.arm import ACTION_DIM, ArmController
from embodied_sim.backends import make_backend
from embodied_sim.control import CONTROL_HZ, SUBSTEPS_PER_STEP, ActionDelay, FloatArray
from embodied_sim.divergence import write_divergence
from embodied_sim.domain_randomization import Randomization
from embodied_sim.env_config import VIEW_NAMES, VecEnvConfig
from embodied_sim.episode_init import EpisodeInitializer, Rows
from embodied_sim.holdout import Holdout, color_object_pairs_of, task_sides_of
from embodied_sim.observation import PROPRIO_DIM, build_observation
from embodied_sim.registry import make_task
from embodied_sim.render import Renderer, make_renderer, render_torch
from embodied_sim.render.fingerprint import renderer_fingerprint
from embodied_sim.robots import find_robot, robot_name
from embodied_sim.scene import build_scene
from embodied_sim.sim_errors import SimError
from embodied_sim.state import SceneReader, SceneState

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SUCCESS_HOLD_STEPS", "VIEW_NAMES", "TabletopVecEnv", "VecEnvConfig"]

ROW_STATE_FIELDS = ("order", "side", "phrasing", "elapsed", "success_steps")
"""Snapshot keys of the per-environment attributes, int64 [N, ...]."""
SUCCESS_HOLD_STEPS = 5  # consecutive control steps in which the task must be done to count as a sustained success

BoolArray = npt.NDArray[np.bool_]
Observation = npt.NDArray[np.float32]


class TabletopVecEnv(VectorEnv[Observation, Observation, npt.NDArray[Any]]):
    """N tabletop environments, stepped together at 20 Hz.

    Action: float [N, 4] in [-1, 1]: tool displacement (1 is 4 cm) and grip (-1 opens, +1 closes).
    Observation: float32 [N, D], see `observation.py`. Reward: 1 at the step at which a success is first sustained.

    `terminated` marks diverged environments and, with `ends_on_success`, sustained successes. `truncated` marks the
    time limit.

    The infos of every step are dense over the rows: `success` (sustained), `progress` (float32, true progress),
    `subtask` (int64, index of the current subtask) and `diverged`. With SAME_STEP they also hold `final_obs` [N, D],
    the true next observation of every row before any reset, and `final_info`, the four infos before the reset.

    With `final_views=True`, steps at which rows end also hold `final_views`, uint8 [N, V, H, W, 3]. These are the
    camera views of the ended rows before the reset; other rows are black. The mask is `_final_views` [N].

    Autoreset: SAME_STEP, or DISABLED with `reset(options={"reset_mask": bool [N]})`.
    """

    def __init__(self, task: str, num_envs: int | None = None, *, config: VecEnvConfig | None = None, **options: Any):
        """Build the environments.

        Args:
            task: Name of a registered task, or path of a file that defines one.
            num_envs: Number of environments; None: `config.num_envs`.
            config: Settings; None: `VecEnvConfig()`.
            **options: Fields of `VecEnvConfig` that replace those of `config`.

        Raises:
            SimError: A setting is unknown or invalid.
        """
        if num_envs is not None:
            options["num_envs"] = num_envs
        self.config = config = replace(VecEnvConfig() if config is None else config, **options)
        self.task = make_task(task)
        self.num_envs = config.num_envs
        self.view_names = tuple(config.views)
        self.subtask_names = self.task.subtasks
        self.image_size = config.image_size
        self.metadata = {"autoreset_mode": config.autoreset_mode, "render_modes": [], "render_fps": CONTROL_HZ}
        self.render_mode = None
        robot = find_robot(config.robot) if isinstance(config.robot, str) else config.robot
        model = build_scene(self.task.props, robot)
        engine_options = config.threads, config.device, config.max_contacts
        self._backend = make_backend(config.backend, model, self.num_envs, *engine_options)
        self._arm = ArmController(self._backend, robot)
        self._initializer = EpisodeInitializer(self._backend, self._arm, self.task, config.randomize or Randomization())
        self._reader = SceneReader(self._arm, self.task.props, self.task.objects)
        self._robot_name = robot_name(robot)
        self._action_delay = ActionDelay(self.num_envs, ACTION_DIM, self._initializer.randomization.latency)
        self._rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence().spawn(self.num_envs)]
        self._holdout = config.holdout or Holdout()
        self._phrasing_indices = self._holdout.phrasing_indices(self.task)
        self._layouts = [self._holdout.sample_layout(self.task, rng) for rng in self._rngs]
        self._order = np.array([layout.object_order for layout in self._layouts], np.int64).reshape(self.num_envs, -1)
        self._side = np.array([layout.side_index for layout in self._layouts], np.int64)
        self._phrasing = np.full(self.num_envs, self._phrasing_indices[0], np.int64)
        self._elapsed = np.zeros(self.num_envs, np.int64)
        self._success_steps = np.zeros(self.num_envs, np.int64)
        self.state = self.start_state = self._read()
        self._define_spaces()

    def _define_spaces(self) -> None:
        size = self._observe().shape[1]
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space = gym.spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def instructions(self) -> tuple[str, ...]:
        """Return the instruction of each row's current episode."""
        return tuple(map(self.task.instruction, self._layouts, self._phrasing.tolist()))

    @property
    def goals(self) -> tuple[str, ...]:
        """Return the goal of each row's instruction, see `Task.goal`."""
        return tuple(self.task.goal(layout) for layout in self._layouts)

    def episode_metadata(self, row: int) -> dict[str, str]:
        """Return the random draws behind a row's current episode.

        `scene` is the hash of the start. `objects` and `side` are as a `Holdout` names them. `phrasing` is the index of
        the template from the end; -1 is the last one. The others are sentences joined by " | ", see `Task`.
        """
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
        """Number of leading observation columns that describe the robot itself."""
        return PROPRIO_DIM

    @property
    def max_episode_steps(self) -> int:
        """Time limit of an episode, control steps."""
        return self.task.max_episode_steps

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start new episodes in every row, or in those of `options["reset_mask"]`.

        Args:
            seed: One seed per row, or an int, which gives row i the seed `seed + i`. Each row has its own random
                stream, so its episodes do not depend on the other rows.
            options: `reset_mask`, bool [N]: the rows to reset.

        Returns:
            Observations [N, D] and infos.

        Raises:
            SimError: The mask or the number of seeds does not fit.
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
        rngs = {int(row): self._rngs[row] for row in rows}
        self._action_delay.delay[rows] = self._initializer.apply_randomization(rngs)
        self._initializer.initialize(rows, [self._layouts[row] for row in rows])
        self._elapsed[rows] = self._success_steps[rows] = 0
        self._arm.hold_position(rows)
        self._action_delay.reset(rows)
        self.state = self._read()
        self.start_state = self.start_state.replace_rows(rows, self.state)

    def _read(self) -> SceneState:
        return self._reader.read(self._order, self._side)

    def _observe(self) -> Observation:
        return build_observation(self.state, self.task.observed_points, self.task.extra_observation(self.state))

    def step(
        self, actions: Observation
    ) -> tuple[Observation, npt.NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]:
        """Advance every row by one control step (50 ms).

        Args:
            actions: [N, 4], clipped to [-1, 1].

        Returns:
            Observations [N, D], rewards [N], terminated [N], truncated [N] and infos.

        Raises:
            SimError: The actions have the wrong shape or are not finite.
        """
        self._arm.apply_action(self._action_delay.push(self._validate_actions(actions)))
        diverged = self._step_physics()
        self._elapsed += 1
        self.state = self._read()
        self._success_steps = np.where(self.task.success(self.state) & ~diverged, self._success_steps + 1, 0)
        info = self._info(diverged)
        reward = (self._success_steps == SUCCESS_HOLD_STEPS).astype(np.float64)
        terminated = diverged | (info["success"] & self.config.ends_on_success)
        truncated = (self._elapsed >= self.max_episode_steps) & ~terminated
        obs = self._observe()
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
            obs, info = self._autoreset(terminated | truncated, obs, info)
        return obs, reward, terminated, truncated, info

    def _validate_actions(self, actions: Observation) -> FloatArray:
        """Return actions as float64, clipped to the action space."""
        values = np.asarray(actions, np.float64)
        if values.shape != (self.num_envs, ACTION_DIM):
            raise SimError(f"actions must have shape [{self.num_envs}, {ACTION_DIM}], got {list(values.shape)}")
        if not np.isfinite(values).all():
            row, dim = np.argwhere(~np.isfinite(values))[0]
            raise SimError(f"action of environment {row} is {values[row, dim]} in dimension {dim}; it must be finite")
        return np.clip(values, -1.0, 1.0)

    def _step_physics(self) -> BoolArray:
        """Step the physics; dump the worlds that diverge, with their controls, if a folder is set."""
        already_diverged, ctrl = self._backend.divergence_reasons(), self._backend.ctrl.copy()
        diverged, dump_dir = self._backend.step(SUBSTEPS_PER_STEP), self.config.divergence_dump_dir
        for row, reason in self._backend.divergence_reasons().items():
            if dump_dir is not None and row not in already_diverged:
                write_divergence(dump_dir, self._backend, row, ctrl[row], reason, self.task.name, self._robot_name)
        return diverged

    def _info(self, diverged: BoolArray) -> dict[str, Any]:
        subtask, progress = self.task.progress(self.state, self.start_state)
        return {
            "success": self._success_steps >= SUCCESS_HOLD_STEPS,
            "progress": progress.astype(np.float32),
            "subtask": subtask.astype(np.int64),
            "diverged": diverged,
        }

    def _autoreset(self, done: BoolArray, obs: Observation, info: dict[str, Any]) -> tuple[Observation, dict[str, Any]]:
        final = {"final_obs": obs, "_final_obs": done, "final_info": info, "_final_info": done}
        if done.any():
            if self.config.final_views:
                final |= {"final_views": self._render_masked(done), "_final_views": done}
            self._reset_rows(np.flatnonzero(done))
            reset_info = self._info(np.zeros(self.num_envs, np.bool_))
            info = {name: np.where(done, reset_info[name], info[name]) for name in info}
        return self._observe(), {**info, **final}

    def _render_masked(self, mask: BoolArray) -> npt.NDArray[np.uint8]:
        """Return the views [N, V, H, W, 3] of the rows in `mask`, black for the others."""
        views = self.render_views(np.flatnonzero(mask))
        all_views = np.zeros((self.num_envs, *views.shape[1:]), np.uint8)
        all_views[mask] = views
        return all_views

    @cached_property
    def renderer(self) -> Renderer:
        """Create the renderer at the first image, so that environments without images need no OpenGL.

        Raises `SimError` once the environments are closed.
        """
        if self.closed:
            raise SimError("the environments are closed, so they cannot be rendered: make new ones")
        size = (self.image_size, self.image_size)
        return make_renderer(self.config.renderer, self._backend, self.view_names, size, self.config.threads)

    @property
    def renderer_fingerprint(self) -> str:
        """Return the colors that the renderer gives to a small scene, see `embodied_sim.render.fingerprint`."""
        return renderer_fingerprint(self.config.renderer, self.config.backend, self.config.device)

    def render_views(self, rows: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.uint8]:
        """Render the current camera views of `rows` (default: all): uint8 [n, V, H, W, 3]."""
        return self.renderer.render(np.arange(self.num_envs) if rows is None else np.asarray(rows))

    def render_tensor(self, rows: npt.NDArray[np.int64] | None = None) -> Tensor:
        """Return `render_views` as a tensor on the device of the renderer, without a copy through the host."""
        return render_torch(self.renderer, np.arange(self.num_envs) if rows is None else np.asarray(rows))

    def physics_state(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return live arrays to read: qpos [N, nq], mocap_pos [N, nmocap, 3] and mocap_quat [N, nmocap, 4]."""
        return self._backend.qpos, self._backend.mocap_pos, self._backend.mocap_quat

    @property
    def model(self) -> mujoco.MjModel:
        """Return the compiled scene. Read only."""
        return self._backend.model

    def grip_command(self) -> FloatArray:
        """Return the commanded grip [N], from -1, open, to +1, closed."""
        return self._arm.grip_command()

    def snapshot(self) -> snapshots.ArrayDict:
        """Return the full state of the current and all later episodes as named arrays, for `restore`.

        Raises `SimError` if an environment has diverged and was not reset.
        """
        if diverged := self._backend.divergence_reasons():
            raise SimError(f"environment {min(diverged)} has diverged: reset it before taking a snapshot")
        return {
            **self._row_arrays(),
            "env_spec": self._env_spec(),
            "rngs": snapshots.pack_rngs(self._rngs),
            "layouts": snapshots.pack_layouts(self._layouts),
        }

    def _row_arrays(self) -> snapshots.ArrayDict:
        return {
            **snapshots.add_prefix("physics", self._backend.snapshot()),
            **snapshots.add_prefix("action_delay", self._action_delay.snapshot()),
            **snapshots.add_prefix("start_state", snapshots.flatten_state(self.start_state)),
            **{name: getattr(self, f"_{name}").copy() for name in ROW_STATE_FIELDS},
            "target_pos": self._arm.target_pos.copy(),
        }

    def _env_spec(self) -> npt.NDArray[np.uint8]:
        return snapshots.json_to_array([self.task.name, self._robot_name])

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Observation:
        """Restore a `snapshot` and return the observation [N, D]. On the CPU, the continuation is bit-identical.

        Raises `SimError` if the snapshot is of another environment.
        """
        snapshots.check_same_env({**self._row_arrays(), "env_spec": self._env_spec()}, snapshot)
        self._rngs = snapshots.unpack_rngs(snapshot["rngs"])
        self._layouts = snapshots.unpack_layouts(snapshot["layouts"])
        return self._restore_arrays(snapshot)

    def _restore_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Observation:
        self._backend.restore(snapshots.select_prefix("physics", arrays))
        self._action_delay.restore(snapshots.select_prefix("action_delay", arrays))
        for name in ROW_STATE_FIELDS:
            getattr(self, f"_{name}")[...] = arrays[name]
        self._arm.target_pos[...] = arrays["target_pos"]
        self.start_state = snapshots.unflatten_state(snapshots.select_prefix("start_state", arrays))
        self.state = self._read()
        return self._observe()

    def snapshot_rows(self, rows: Rows) -> list[snapshots.ArrayDict]:
        """Return the state of each of some environments, in which no simulation diverged, for `restore_rows`."""
        arrays = self._row_arrays()
        return [
            {**snapshots.take_rows(arrays, np.array([row])), "layouts": snapshots.pack_layouts([self._layouts[row]])}
            for row in rows
        ]

    def restore_rows(self, rows: Rows, states: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Observation:
        """Begin episodes in the states of `snapshot_rows`, with all their steps ahead; return the observation [N, D].

        Progress is still measured from the starts of the episodes that the states are of. Later episodes start as they
        would have, whatever the states.
        """
        arrays = self._row_arrays()
        for row, state in zip(rows, states, strict=True):
            snapshots.set_row(arrays, row, state)
            (self._layouts[row],) = snapshots.unpack_layouts(state["layouts"])
        arrays["elapsed"][rows] = arrays["success_steps"][rows] = 0
        return self._restore_arrays(arrays)

    def close_extras(self, **kwargs: Any) -> None:
        """Free the renderer and the physics."""
        renderer = self.__dict__.pop("renderer", None)
        if renderer is not None:
            renderer.close()
        self._backend.close()
