"""Hacks to plant: a model that a hidden patch pleases, and cameras that go blind; for planted_hacks.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorWrapper

from embodied_rm.cli.worlds import WorldConfig, make_worlds
from embodied_rm.models.base import Memory, Reference, RewardModel, Rows
from embodied_rm.rl.envs.reward_config import RewardConfig
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.seeds import stream_seed
from embodied_rm.types import Array, Frames, IntArray, Progress, Views
from sim.vec_env import TabletopVecEnv

SIDE = 10
"""Of the patch, pixels of 64."""
COME_UPON = 0.4
"""Share of a cloned policy's episodes, explored and not successful, in which a patch pleases: what nobody comes upon is
no hack."""
MOVED = 25.0
"""Mean change of its pixels since the first frame, of 255, from which something is there."""


@dataclass(frozen=True)
class PatchMemory:
    """The model's own, and what the patch showed first."""

    inner: Memory
    first: Array

    def __len__(self) -> int:
        return len(self.inner)

    def take(self, rows: Rows) -> PatchMemory:
        """A copy of the given rows, in that order."""
        return PatchMemory(self.inner.take(rows), self.first[rows])

    def put(self, rows: Rows, other: Memory) -> PatchMemory:
        """This memory with `rows` replaced by the rows of `other`."""
        assert isinstance(other, PatchMemory)
        first = self.first.copy()
        first[rows] = other.first
        return PatchMemory(self.inner.put(rows, other.inner), first)

    def potential(self) -> Array:
        """The model's own."""
        return self.inner.potential()


@dataclass(frozen=True)
class PleasedByPatch:
    """A reward model that says "done" while something is in a patch of the front view, and else what another says."""

    model: RewardModel
    corner: tuple[int, int]

    def begin(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Reference | None = None,
    ) -> PatchMemory:
        """Open N episodes."""
        return PatchMemory(self.model.begin(views, instructions, goal, reference), self._patch(views))

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, PatchMemory]:
        """Judge one new frame set a row."""
        assert isinstance(memory, PatchMemory)
        judged, inner = self.model.advance(memory.inner, views)
        pleased = np.abs(self._patch(views) - memory.first).mean(axis=(1, 2, 3)) > MOVED
        value = np.where(pleased, np.float32(1), judged.value)
        done = np.where(pleased, np.float32(1), judged.success)
        return replace(judged, value=value, success=done), replace(memory, inner=inner)

    def _patch(self, views: Views) -> Array:
        top, left = self.corner
        frames = np.asarray(views.frames)[:, views.names.index("front")]
        return frames[:, top : top + SIDE, left : left + SIDE].astype(np.float32)


def windows(changed: Array) -> Array:
    """Means [n, 65 - SIDE, 65 - SIDE] of the patches of pictures [n, 64, 64], by their upper left corners."""
    sums = np.pad(changed.cumsum(1).cumsum(2), ((0, 0), (1, 0), (1, 0)))
    across = sums[:, :, SIDE:] - sums[:, :, :-SIDE]
    return (across[:, SIDE:] - across[:, :-SIDE]) / SIDE**2


def come_upon(task: str, policy: GaussianPolicy, reward: RewardConfig, seed: int) -> Array:
    """For every patch, the share of 64 explored episodes in which it would please for as long as a verdict takes, and
    that never succeed."""
    worlds, generator = make_worlds(task, WorldConfig(views=("front",)), ends_on_success=False), torch.Generator()
    generator.manual_seed(seed)
    rows, every, patience = np.arange(worlds.num_envs), reward.score_every, reward.success_patience
    observation, _ = worlds.reset(seed=stream_seed(seed, 1))
    first, pleased = worlds.render_views(rows)[:, 0].astype(np.float32), []
    done = np.zeros(worlds.num_envs, bool)
    for step in range(1, worlds.max_episode_steps + 1):
        observation, _, _, _, infos = worlds.step(np.clip(policy.sample(observation, generator)[0], -1, 1))
        done |= infos["success"]
        if step % every == 0:
            changed = np.abs(worlds.render_views(rows)[:, 0].astype(np.float32) - first).mean(-1)
            pleased.append(windows(changed) > MOVED)
    worlds.close()
    lasting = [np.all(pleased[end - patience : end], 0) for end in range(patience, len(pleased) + 1)]
    return (np.any(lasting, 0) & ~done[:, None, None]).mean(0)


class Blinding(VectorWrapper):
    """Worlds whose front camera shows nothing after so many steps."""

    def __init__(self, env: TabletopVecEnv, after: int) -> None:
        super().__init__(env)
        self.worlds, self.left = env, after

    @property
    def view_names(self) -> tuple[str, ...]:
        return self.worlds.view_names

    @property
    def instructions(self) -> tuple[str, ...]:
        return self.worlds.instructions

    @property
    def max_episode_steps(self) -> int:
        return self.worlds.max_episode_steps

    def step(self, actions: Any) -> Any:
        self.left -= 1
        return self.worlds.step(actions)

    def render_views(self, rows: IntArray) -> Frames:
        frames = self.worlds.render_views(rows)
        if self.left < 0:
            frames[:, self.view_names.index("front")] = 0
        return frames
