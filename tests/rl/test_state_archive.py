"""Episodes that begin in promising states of failed ones: which states, what is restored, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from rl_envs import ImageModel, PointReachEnv
from test_resume import play
from test_rlpd import CONFIG
from test_takeover import still_policy

from embodied_rm.checkpoint_io import strip_prefix
from embodied_rm.data.record import RecordEpisodes
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.best_weights import iteration_to_restore
from embodied_rm.rl.envs.curriculum import StartCurriculum
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv, StateRewardEnv
from embodied_rm.rl.envs.state_archive import ArchiveConfig, StateArchive
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.types import Episode
from embodied_sim.vec_env import TabletopVecEnv

ALWAYS = 1 - 1e-12  # share of episodes that return
PROGRESS = RewardConfig(rule="dense", success_source="simulator")


def state_of(potential: float) -> dict[str, torch.Tensor]:
    return {"potential": torch.tensor(potential)}


def test_the_last_promising_state_of_each_failed_episode_is_kept() -> None:
    archive = StateArchive(ArchiveConfig(share=ALWAYS, size=2, min_gain=0.2), 3, seed=0)
    rows = np.arange(3)
    archive.begin(rows, np.array([0.1, 0.1, 0.5]))
    assert archive.promising_rows(np.array([0.31, 0.25, 0.9]), np.array([True, True, False])).tolist() == [0]
    archive.keep(0, state_of(0.31))
    assert archive.promising_rows(np.array([0.45, 0.31, 0.71]), np.ones(3, bool)).tolist() == [1, 2]
    archive.keep(0, state_of(0.6))
    archive.keep(1, state_of(0.4))
    archive.keep(2, state_of(0.7))
    archive.end(rows, np.array([False, True, False]))
    assert len(archive) == 2, "none of a success"
    archive.begin(rows, np.zeros(3))
    returned = archive.draw(rows)
    assert returned.keys() == {0, 1, 2} and archive.has_returned.all()
    assert {round(float(state["potential"]), 1) for state in returned.values()} <= {0.6, 0.7}
    archive.end(rows, np.zeros(3, bool))
    assert len(archive) == 2, "episodes without a further gain add no state"
    archive.keep(0, state_of(0.9))
    archive.end(np.array([0]), np.zeros(1, bool))
    archive.begin(rows, np.zeros(3))
    assert not archive.has_returned.any()
    potentials = {float(state["potential"]) for _ in range(20) for state in archive.draw(rows).values()}
    assert len(archive) == len(potentials) == 2 and max(potentials) == pytest.approx(0.9), "the oldest is forgotten"


def test_the_share_of_episodes_that_return() -> None:
    archive = StateArchive(ArchiveConfig(share=0.3), 1000, seed=0)
    rows = np.arange(1000)
    assert archive.draw(rows) == {}, "there is no state yet"
    archive.keep(0, state_of(0.5))
    archive.end(np.array([0]), np.zeros(1, bool))
    assert 250 < len(archive.draw(rows)) < 350


def act(rng: np.random.Generator, num_envs: int) -> np.ndarray:
    return rng.uniform(-1, 1, (num_envs, 4)).astype(np.float32)


def test_returned_episodes_continue_as_those_that_they_return_to() -> None:
    envs = TabletopVecEnv("lift_cube", 3, autoreset_mode=AutoresetMode.DISABLED)
    model = load_progress_net(BUNDLED_CHECKPOINT)
    env = LearnedRewardEnv(envs, model, RewardConfig(success_patience=1000), 0.98)
    env.archive = archive = StateArchive(ArchiveConfig(share=ALWAYS, min_gain=1e-6), 3, seed=0)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(envs.max_episode_steps):
        observation, *_, infos = env.step(act(rng, 3))
    assert archive.has_returned.all() and len(archive) == 3
    assert (envs._elapsed == 0).all(), "all steps of an episode are ahead"
    other = TabletopVecEnv("lift_cube", 3, autoreset_mode=AutoresetMode.DISABLED)
    other.reset(seed=9)
    potential = np.zeros(3)
    for row, stored in enumerate(match_states(env, archive)):
        snapshot = {name: tensor.numpy() for name, tensor in strip_prefix("env", stored).items()}
        restored = other.restore_rows(np.array([row]), [snapshot])
        np.testing.assert_array_equal(restored[row], observation[row])
        own_state, stored_state = env._take_reward_state(row), strip_prefix("reward_state", stored)
        assert stored_state and all(torch.equal(tensor, own_state[name]) for name, tensor in stored_state.items())
        potential[row] = float(stored["potential"])
    actions = act(rng, 3)
    observation, *_, infos = env.step(actions)
    np.testing.assert_array_equal(infos["final_obs"], other.step(actions)[0])
    np.testing.assert_array_equal(infos["potential"], potential)
    assert envs.instructions == other.instructions
    env.close()
    other.close()


def match_states(env: LearnedRewardEnv, archive: StateArchive) -> list[dict[str, torch.Tensor]]:
    """Return the state of the archive that each row has returned to, by its critic's observation."""
    states = archive._archive
    nearest = [np.argmin([np.abs(s["critic_obs"].numpy() - state).max() for s in states]) for state in env._state]
    return [states[index] for index in nearest]


def test_later_starts_do_not_depend_on_what_a_row_returned_to() -> None:
    one, other = (TabletopVecEnv("place_in_bowl", 2, autoreset_mode=AutoresetMode.DISABLED, views=()) for _ in range(2))
    for envs in (one, other):
        envs.reset(seed=5)
    one.restore_rows(np.array([0]), one.snapshot_rows(np.array([1])))
    assert one.instructions == (other.instructions[1],) * 2
    mask = {"reset_mask": np.ones(2, bool)}
    np.testing.assert_array_equal(one.reset(options=mask)[0], other.reset(options=mask)[0])
    assert one.instructions == other.instructions
    one.close()
    other.close()


def test_episodes_that_return_are_not_counted() -> None:
    envs = TabletopVecEnv("lift_cube", 4, autoreset_mode=AutoresetMode.DISABLED, views=())
    env = StateRewardEnv(envs, PROGRESS, 0.98)
    env.archive = StateArchive(ArchiveConfig(share=ALWAYS, min_gain=0.01), 4, seed=0)
    env.curriculum = StartCurriculum(6, 4, seed=0)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(envs.max_episode_steps):
        env.step(act(rng, 4))
    first, rates = env.pop_stats(), env.curriculum.pool.failure_rates
    assert first.episodes == 4 and first.returned_episodes == 0 and len(env.archive) > 0
    for _ in range(envs.max_episode_steps):
        env.step(act(rng, 4))
    second = env.pop_stats()
    assert second.returned_episodes >= 4
    assert second.episodes == second.hover_episodes == 0 and second.shaped_return == second.final_potential == 0
    np.testing.assert_array_equal(env.curriculum.pool.failure_rates, rates)
    env.close()


def test_the_recorder_leaves_out_episodes_that_return() -> None:
    episodes: list[Episode] = []
    envs = TabletopVecEnv("place_in_bowl", 2, views=("front",), autoreset_mode=AutoresetMode.DISABLED)
    recorder = RecordEpisodes(envs, episodes.append, num_recorded=2, frame_stride=1)
    env = StateRewardEnv(recorder, PROGRESS, 0.98)
    env.archive = StateArchive(ArchiveConfig(share=ALWAYS, min_gain=0.01), 2, seed=0)
    env.reset(seed=0)
    instructions, rng = envs.instructions, np.random.default_rng(0)
    while env.stats.returned_episodes < 4:
        env.step(act(rng, 2))
    assert [episode.instruction for episode in episodes] == list(instructions)
    assert all(len(episode) == envs.max_episode_steps + 1 for episode in episodes)
    env.close()


def test_best_weights_do_not_count_the_steps_of_episodes_that_return() -> None:
    """The successes stay; with the archive, a part of the environments begins no episode at a start."""
    alone = [{"success": 0.8, "episodes": 64, "env_steps": 3840, "start_steps": 3840}] * 4
    shared = [{"success": 0.8, "episodes": 45, "env_steps": 3840, "start_steps": 2700}] * 4
    assert iteration_to_restore([*alone, *shared], 60) is None


def test_a_resumed_refinement_with_an_archive_is_bit_identical(tmp_path: Path) -> None:
    settings = {"archive": ArchiveConfig(share=0.5, min_gain=0.001)}
    uninterrupted = play(tmp_path / "uninterrupted", "lift_cube", RewardConfig(), **settings)
    for steps in (13, 20):
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path / "resumed", "lift_cube", RewardConfig(), steps, **settings)
    resumed = play(tmp_path / "resumed", "lift_cube", RewardConfig(), **settings)
    assert any("state_archive" in name and "reward_state" in name for name in uninterrupted)
    assert uninterrupted.keys() == resumed.keys()
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)


def test_wrong_settings_say_what_is_possible(tmp_path: Path) -> None:
    for config, message in [
        ({"share": 1.0}, r"archive\.share must be from 0 to less than 1, got 1\.0"),
        ({"size": 0}, r"archive\.size must be >= 1, got 0"),
        ({"min_gain": 0}, r"archive\.min_gain must be > 0, got 0"),
    ]:
        with pytest.raises(UserError, match=message):
            ArchiveConfig(**config)  # type: ignore[arg-type]
    archive, sparse = ArchiveConfig(share=0.1), RewardConfig(rule="sparse", success_source="simulator")
    with pytest.raises(UserError, match=r"archive\.share=0\.1 needs progress, which reward\.rule=sparse does not read"):
        RefineConfig(reward=sparse, archive=archive)
    with pytest.raises(UserError, match=r"needs a rule .* reward\.rule=redistributed compares whole"):
        RefineConfig(reward=RewardConfig(rule="redistributed"), archive=archive)
    config = replace(CONFIG, algorithm="ppo", archive=archive)
    with pytest.raises(UserError, match=r"archive\.share needs an environment with snapshot_rows and restore_rows"):
        refine(PointReachEnv(2), still_policy(), ImageModel(), config, RunFolder(tmp_path), NullReporter(), None)
    envs = TabletopVecEnv("lift_cube", 2, views=("front",), autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(UserError, match=r"needs a reward model whose state can be stored"):
        LearnedRewardEnv(envs, ImageModel(), RewardConfig(), 0.98).check_restores_rows()
    envs.close()
