"""Start states that fail in one world are the starts of a refinement in another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rl_envs import ImageModel
from test_curriculum import StreamEnv
from test_refine import CONFIG, weak_policy

from embodied_rm.distributed import DistContext
from embodied_rm.errors import DataError, UserError
from embodied_rm.rl.envs.curriculum import FIRST_SEED, MIN_FAILURE_RATE, StartCurriculum, StartPool
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import RefineOptions, validate_options
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.tabletop.envs import EnvConfig, make_envs
from embodied_rm.tabletop.exported_starts import STARTS_FILE, read_starts, write_starts
from embodied_sim.domain_randomization import Randomization

POOL = StartPool(seeds=FIRST_SEED + np.array([5, 3, 8]), failure_rates=np.array([1.0, 0.0, 0.6]))
REAL_WORLD = EnvConfig(robot="six_axis", randomize=Randomization(friction=0.5, mass=0.5, latency=2))


def test_a_file_has_the_same_starts_and_rates(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path, resume=False)
    write_starts(run, POOL, "lift_cube", REAL_WORLD)
    content = json.loads((tmp_path / STARTS_FILE).read_text())
    assert content["schema_version"] == 1 and content["task"] == "lift_cube"
    assert content["world"]["robot"] == "six_axis" and content["world"]["randomize"]["latency"] == 2
    for path in (tmp_path, tmp_path / STARTS_FILE):
        read = read_starts(path, "lift_cube")
        assert np.array_equal(read.seeds, POOL.seeds) and np.array_equal(read.failure_rates, POOL.failure_rates)


def test_starts_are_drawn_by_the_rates_of_the_other_world() -> None:
    curriculum, rows = StartCurriculum.from_pool(POOL, 1, seed=0), np.arange(1)
    drawn = [curriculum.draw(rows)[0] for _ in range(6000)]
    share = np.array([drawn.count(seed) for seed in POOL.seeds]) / len(drawn)
    assert np.allclose(share, np.array([1.0, MIN_FAILURE_RATE, 0.6]) / 1.7, atol=0.02)
    curriculum.update(rows, np.array([True]))
    assert curriculum.pool.failure_rates.min() < 0.6 and POOL.failure_rates.tolist() == [1.0, 0.0, 0.6]


def test_a_restored_curriculum_keeps_its_starts_though_the_file_changed() -> None:
    one = StartCurriculum.from_pool(POOL, 2, seed=0)
    one.draw(np.arange(2))
    other = StartCurriculum.from_pool(StartPool(seeds=POOL.seeds[:1] + 9, failure_rates=np.ones(1)), 2, seed=0)
    other.load_state_dict(one.state_dict())
    assert [other.draw(np.arange(2)) for _ in range(9)] == [one.draw(np.arange(2)) for _ in range(9)]


@pytest.mark.parametrize("task", ["lift_cube", "open_drawer", "sort_two"])
def test_a_seed_is_the_same_start_in_both_worlds(task: str) -> None:
    """Items, fixtures, joints, tool and instruction are the same; only robot, friction, mass and latency differ."""
    seeds = (FIRST_SEED + np.arange(4)).tolist()
    states, layouts, instructions = [], [], []
    for config in (EnvConfig(num_envs=4, views=()), replace(REAL_WORLD, num_envs=4, views=())):
        envs = make_envs(task, config, ends_on_success=False)
        envs.reset(seed=0)
        for mask in (np.arange(4) < 4, np.arange(4) == 2):  # a row that is reset later has the same start
            envs.reset(seed=seeds, options={"reset_mask": mask})
        states.append(envs.state)
        layouts.append([layout.scene_hash for layout in envs._layouts])
        instructions.append(envs.instructions)
        envs.close()
    assert layouts[0] == layouts[1] and instructions[0] == instructions[1] and len(set(layouts[0])) == 4
    assert np.allclose(states[0].object_positions, states[1].object_positions, atol=1e-6)
    assert np.allclose(states[0].tool_pos, states[1].tool_pos, atol=0.01)


def test_a_refinement_begins_episodes_at_given_starts_only_and_returns_their_rates(tmp_path: Path) -> None:
    envs, run = StreamEnv(8), RunFolder.open(tmp_path, resume=False)
    config = replace(CONFIG, iterations=3, rollout_steps=45)
    options = RefineOptions(starts=POOL)
    result = refine(envs, weak_policy(), ImageModel(), config, run, NullReporter(), None, options)
    assert {seed for seed, _ in envs.started} <= set(POOL.seeds.tolist())
    assert result.start_pool is not None and np.array_equal(result.start_pool.seeds, POOL.seeds)
    assert not np.array_equal(result.start_pool.failure_rates, POOL.failure_rates)


def test_pools_that_exclude_each_other_or_several_processes_are_refused() -> None:
    with pytest.raises(UserError, match="starts and start_pool_size=4 both set the pool"):
        validate_options(RefineConfig(start_pool_size=4), RefineOptions(starts=POOL))
    with pytest.raises(UserError, match="given starts work in one process only"):
        validate_options(RefineConfig(), RefineOptions(starts=POOL, dist=DistContext(world_size=2)))


def test_other_files_are_refused(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path, resume=False)
    with pytest.raises(UserError, match=r"there is no .*starts\.json; refine with start_pool_size= writes it"):
        read_starts(tmp_path, "lift_cube")
    write_starts(run, POOL, "lift_cube", REAL_WORLD)
    with pytest.raises(UserError, match="its starts are of the task lift_cube, not of open_drawer"):
        read_starts(tmp_path, "open_drawer")
    content = json.loads((tmp_path / STARTS_FILE).read_text())
    for changed, message in (
        ({"schema_version": 2}, "has schema_version 2, this package reads 1"),
        ({"starts": []}, "a start needs a seed of at least"),
        ({"starts": [{"seed": 3, "failure_rate": 0.5}]}, "a start needs a seed of at least"),
        ({"starts": [{"seed": FIRST_SEED, "failure_rate": float("nan")}]}, "a failure_rate from 0 to 1"),
        ({"starts": [{"seed": 2**80, "failure_rate": 0.5}]}, "is not a file of start states"),
        ({"starts": [{"seed": FIRST_SEED}]}, "is not a file of start states .KeyError.'failure_rate'"),
        ({"starts": 7}, "is not a file of start states"),
    ):
        (tmp_path / STARTS_FILE).write_text(json.dumps({**content, **changed}))
        with pytest.raises(DataError, match=message):
            read_starts(tmp_path, "lift_cube")
    for text in ("[]", "{", "null"):
        (tmp_path / STARTS_FILE).write_text(text)
        with pytest.raises(DataError, match="is not a file of start states"):
            read_starts(tmp_path, "lift_cube")
