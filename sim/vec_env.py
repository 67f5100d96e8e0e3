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

from sim.arm import ACTION_SIZE, Arm
from sim.backends import make_backend
from sim.control import CONTROL_HZ, SUBSTEPS, FloatArray
from sim.delay import DelayLine
from sim.errors import SimError, lookup
from sim.faults import write_fault
from sim.holdout import Holdout, pairs_of, sides_of
from sim.observation import PROPRIO, observe
from sim.placing import Placer
from sim.randomize import Randomization
from sim.registry import make_task
from sim.render import Renderer, make_renderer, render_torch
from sim.robots import Robot, find_robot, robot_name
from sim.scene import build_scene
from sim.snapshot import (
    Arrays,
    layouts_from,
    layouts_of,
    packed,
    prefixed,
    refuse_other,
    state_from,
    state_of,
    streams_from,
    streams_of,
    under,
)
from sim.state import SceneReader, SceneState

if TYPE_CHECKING:
    from torch import Tensor

VIEWS = ("front", "side", "wrist")
COUNTS = ("order", "side", "phrasing", "elapsed", "held")
"""Of an environment, what is counted or drawn for each row, int64 [N, ...]."""
SUCCESS_HOLD = 5
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

    `holdout`: which colours of things, sides and phrasings are drawn. `randomize`: how else worlds differ.

    Autoreset: SAME_STEP, or DISABLED with `reset(options={"reset_mask": bool [N]})`.
    """

    def __init__(
        self,
        task: str,
        num_envs: int = 64,
        *,
        robot: str | Robot = "panda",
        views: Sequence[str] = VIEWS,
        image_size: int = 64,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        ends_on_success: bool = False,
        backend: str = "batch",
        device: str = "cpu",
        contacts: int = 0,
        renderer: str = "auto",
        threads: int = 0,
        randomize: Randomization | None = None,
        holdout: Holdout | None = None,
        faults: Path | None = None,
        final_views: bool = False,
    ) -> None:
        for view in views:
            lookup({name: name for name in VIEWS}, view, "view")
        if autoreset_mode is AutoresetMode.NEXT_STEP:
            raise SimError("autoreset_mode must be SAME_STEP or DISABLED: with NEXT_STEP terminal views are lost")
        if final_views and autoreset_mode is not AutoresetMode.SAME_STEP:
            raise SimError("final_views needs autoreset_mode=SAME_STEP: else render_views shows them until the reset")
        if num_envs < 1:
            raise SimError(f"num_envs must be >= 1, got {num_envs}")
        self.task = make_task(task)
        self.num_envs = num_envs
        self.view_names = tuple(views)
        self.step_names = self.task.steps
        self.image_size = image_size
        self.ends_on_success = ends_on_success
        self.metadata = {"autoreset_mode": autoreset_mode, "render_modes": [], "render_fps": CONTROL_HZ}
        self.render_mode = None
        arm = find_robot(robot) if isinstance(robot, str) else robot
        model = build_scene(self.task.props, arm)
        self._backend = make_backend(backend, model, num_envs, threads, device, contacts)
        self._renderer_name, self._threads = renderer, threads
        self._arm = Arm(self._backend, arm)
        self._placer = Placer(self._backend, self._arm, self.task, Randomization() if randomize is None else randomize)
        self._reader = SceneReader(self._arm, self.task.props, self.task.objects)
        self._faults, self._final_views = faults, final_views
        self._robot_name = robot_name(arm)
        self._line = DelayLine(num_envs, ACTION_SIZE, self._placer.randomize.latency)
        self._rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence().spawn(num_envs)]
        self._holdout = Holdout() if holdout is None else holdout
        self._phrasings = self._holdout.phrasings(self.task)
        self._layouts = [self._holdout.draw(self.task, rng) for rng in self._rngs]
        self._order = np.array([layout.order for layout in self._layouts], np.int64).reshape(num_envs, -1)
        self._side = np.array([layout.side for layout in self._layouts], np.int64)
        self._phrasing = np.full(num_envs, self._phrasings[0], np.int64)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._held = np.zeros(num_envs, np.int64)
        self.state = self._start = self._read()
        self._define_spaces()

    def _define_spaces(self) -> None:
        size = self._observe().shape[1]
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space = gym.spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)
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

    def drawn(self, row: int) -> dict[str, str]:
        """What was drawn for that row's present episode: `scene`, its fingerprint; `objects` in their colours and
        `side`, as a `Holdout` names them; `phrasing`, counted from the end: -1 is the task's last template. Sentences,
        joined by " | ": `paraphrases` of the instruction; `opposites` and `fulfils`, see `Task`."""
        task, layout = self.task, self._layouts[row]
        others = (*(task.templates[i] for i in self._phrasings), *task.paraphrases)
        return {
            "scene": f"{task.name} {layout.scene}",
            "objects": ", ".join(pairs_of(task, layout)),
            "side": ", ".join(sides_of(task, layout)),
            "phrasing": str(int(self._phrasing[row]) - len(task.templates)),
            "paraphrases": " | ".join(task.told(others, layout)),
            "opposites": " | ".join(task.told(task.opposites, layout)),
            "fulfils": " | ".join(task.told(task.fulfils, layout)),
        }

    @property
    def proprio_size(self) -> int:
        """Leading columns of an observation that are of the robot itself."""
        return PROPRIO

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
            self._layouts[row] = layout = self._holdout.draw(self.task, self._rngs[row])
            self._order[row], self._side[row] = layout.order, layout.side
            self._phrasing[row] = self._phrasings[self._rngs[row].integers(len(self._phrasings))]
        self._line.delay[rows] = self._placer.vary({int(row): self._rngs[row] for row in rows})
        self._placer.place(rows, [self._layouts[row] for row in rows])
        self._elapsed[rows] = self._held[rows] = 0
        self._arm.hold(rows)
        self._line.clear(rows)
        now = self._read()
        mask = np.isin(np.arange(self.num_envs), rows)
        self._start = self._start.with_rows(mask, now)
        self.state = now

    def _read(self) -> SceneState:
        return self._reader.read(self._order, self._side)

    def _observe(self) -> npt.NDArray[np.float32]:
        return observe(self.state, self.task.watched, self.task.extra(self.state))

    def step(
        self, actions: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]:
        """One control step (50 ms) in every row."""
        self._arm.follow(self._line.pass_on(self._checked(actions)))
        diverged = self._backend.step(SUBSTEPS) if self._faults is None else self._step_keeping(self._faults)
        self._elapsed += 1
        self.state = self._read()
        self._held = np.where(self.task.success(self.state) & ~diverged, self._held + 1, 0)
        info = self._info(diverged)
        reward = (self._held == SUCCESS_HOLD).astype(np.float64)
        terminated = diverged | (info["success"] & self.ends_on_success)
        truncated = (self._elapsed >= self.max_episode_steps) & ~terminated
        obs = self._observe()
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
            obs, info = self._autoreset(terminated | truncated, obs, info)
        return obs, reward, terminated, truncated, info

    def _checked(self, actions: npt.NDArray[np.float32]) -> FloatArray:
        """Actions as float64, clipped to the action space; refused when of another shape or not finite."""
        values = np.asarray(actions, np.float64)
        if values.shape != (self.num_envs, ACTION_SIZE):
            raise SimError(f"actions must have shape [{self.num_envs}, {ACTION_SIZE}], got {list(values.shape)}")
        if not np.isfinite(values).all():
            row, dim = np.argwhere(~np.isfinite(values))[0]
            raise SimError(f"action of environment {row} is {values[row, dim]} in dimension {dim}; it must be finite")
        return np.clip(values, -1.0, 1.0)

    def _step_keeping(self, folder: Path) -> BoolArray:
        """A step of the physics that writes down the worlds that diverge in it, with what they were commanded."""
        known, commanded = self._backend.faults(), self._backend.ctrl.copy()
        diverged = self._backend.step(SUBSTEPS)
        for row, why in self._backend.faults().items():
            if row not in known:
                write_fault(folder, self._backend, row, commanded[row], why, self.task.name, self._robot_name)
        return diverged

    def _info(self, diverged: BoolArray) -> dict[str, Any]:
        stage, progress = self.task.progress(self.state, self._start)
        return {
            "success": self._held >= SUCCESS_HOLD,
            "progress": progress.astype(np.float32),
            "stage": stage.astype(np.int64),
            "diverged": diverged,
        }

    def _autoreset(
        self, done: BoolArray, obs: npt.NDArray[np.float32], info: dict[str, Any]
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        final = {"final_obs": obs, "_final_obs": done, "final_info": info, "_final_info": done}
        if done.any():
            if self._final_views:
                final |= {"final_views": self._views_of(done), "_final_views": done}
            self._reset_rows(np.flatnonzero(done))
            fresh = self._info(np.zeros(self.num_envs, np.bool_))
            info = {name: np.where(done, fresh[name], info[name]) for name in info}
        return self._observe(), {**info, **final}

    def _views_of(self, seen: BoolArray) -> npt.NDArray[np.uint8]:
        """The views [N, V, H, W, 3] of the rows `seen`, black for the others."""
        views = self.render_views(np.flatnonzero(seen))
        every = np.zeros((self.num_envs, *views.shape[1:]), np.uint8)
        every[seen] = views
        return every

    @cached_property
    def renderer(self) -> Renderer:
        """Made at the first picture, so that an environment nobody looks at needs no GL."""
        size = (self.image_size, self.image_size)
        return make_renderer(self._renderer_name, self._backend, self.view_names, size, self._threads)

    def render_views(self, rows: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.uint8]:
        """What the cameras of `rows` (default: all) show now: uint8 [n, V, H, W, 3]."""
        return self.renderer.render(np.arange(self.num_envs) if rows is None else np.asarray(rows))

    def render_tensor(self, rows: npt.NDArray[np.int64] | None = None) -> Tensor:
        """`render_views` as a tensor, on the device where the pictures are drawn: they do not cross the host."""
        return render_torch(self.renderer, np.arange(self.num_envs) if rows is None else np.asarray(rows))

    def physics_state(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """qpos [N, nq], mocap_pos [N, nmocap, 3] and mocap_quat [N, nmocap, 4] of the worlds now, for a renderer of
        one's own. Live: read, do not write."""
        return self._backend.qpos, self._backend.mocap_pos, self._backend.mocap_quat

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled scene. Read only."""
        return self._backend.model

    def snapshot(self) -> Arrays:
        """Everything that the episodes under way, and those that follow, depend on: arrays by name, for `restore`.

        Raises `SimError` while a world that diverged has not been reset.
        """
        if self._backend.faults():
            raise SimError(f"world {min(self._backend.faults())} has diverged: reset it before taking a snapshot")
        return self._arrays()

    def _arrays(self) -> Arrays:
        return {
            **prefixed("physics", self._backend.snapshot()),
            **prefixed("line", self._line.snapshot()),
            **prefixed("start", state_of(self._start)),
            **{name: getattr(self, f"_{name}").copy() for name in COUNTS},
            "commanded": self._arm.commanded.copy(),
            "of": packed([self.task.name, self._robot_name]),
            "streams": streams_of(self._rngs),
            "layouts": layouts_of(self._layouts),
        }

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Go on from what `snapshot` of such an environment gave, bit for bit on the CPU; the observation then.

        Raises `SimError` for one of another environment.
        """
        refuse_other(self._arrays(), snapshot)
        self._backend.restore(under("physics", snapshot))
        self._line.restore(under("line", snapshot))
        for name in COUNTS:
            getattr(self, f"_{name}")[...] = snapshot[name]
        self._arm.commanded[...] = snapshot["commanded"]
        self._rngs, self._layouts = streams_from(snapshot["streams"]), layouts_from(snapshot["layouts"])
        self._start, self.state = state_from(under("start", snapshot)), self._read()
        return self._observe()

    def close_extras(self, **kwargs: Any) -> None:
        """Free the renderer and the worlds."""
        if "renderer" in self.__dict__:
            self.renderer.close()
        self._backend.close()
