"""Reward programs in simulated environments and in refinements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_programs import GOOD_PROGRAMS

from embodied_rm.cli.main import main
from embodied_rm.errors import UserError
from embodied_rm.programs.program import Program, parse_program
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.env_checks import supports_snapshots
from embodied_rm.rl.envs.learned_env import StateRewardEnv
from embodied_rm.tabletop.envs import EnvConfig, make_envs
from embodied_rm.tabletop.program_env import ProgramEnv, load_program
from embodied_rm.tabletop.program_states import task_variables
from embodied_sim.registry import make_task

GAMMA = 0.9


def parse(source: str, task: str = "lift_cube") -> Program:
    return parse_program(source, task_variables(make_task(task)))


def play(source: str, rule: str, num_steps: int = 12) -> list[tuple[np.ndarray, dict, float]]:
    """Rewards, infos and height of the tool of one environment whose arm moves up."""
    envs = make_envs("lift_cube", EnvConfig(num_envs=1, views=()), ends_on_success=False)
    env = StateRewardEnv(ProgramEnv(envs, parse(source)), RewardConfig(rule=rule, success_source="simulator"), GAMMA)
    env.reset(seed=0)
    steps = []
    for _ in range(num_steps):
        _, reward, _, _, infos = env.step(np.array([[0.0, 0.0, 1.0, 1.0]], np.float32))
        steps.append((reward, infos, float(envs.state.tool_pos[0, 2])))
    env.close()
    return steps


def test_progress_becomes_a_potential() -> None:
    steps = play("progress = clip(tool_pos[2], 0, 1)", "dense")
    heights = np.array([height for _, _, height in steps])
    rewards = np.concatenate([reward for reward, _, _ in steps])
    assert rewards[1:] == pytest.approx(GAMMA * heights[1:] - heights[:-1], abs=1e-6)
    assert np.ptp(heights) > 0.05


def test_a_reward_is_paid_as_it_is() -> None:
    for reward, infos, height in play("reward = 3 * tool_pos[2] - 1", "program"):
        assert reward == pytest.approx(3 * height - 1) and infos["transitions"].task_reward == 0


def test_its_episodes_can_be_saved_and_continued() -> None:
    envs = make_envs("lift_cube", EnvConfig(num_envs=2, views=()), ends_on_success=False)
    env: Any = ProgramEnv(envs, parse("progress = clip(tool_pos[2] - start_tool_pos[2], 0, 1)"))
    assert supports_snapshots(env) and env.max_episode_steps == envs.max_episode_steps
    env.reset(seed=0)
    up = np.array([[0.0, 0.0, 1.0, 1.0]] * 2, np.float32)
    env.step(up)
    snapshot = env.snapshot()
    once = env.step(up)[4]["progress"]
    env.restore(snapshot)
    assert np.array_equal(env.step(up)[4]["progress"], once) and once.min() > 0
    env.close()


def test_undefined_progress_keeps_the_last_potential() -> None:
    steps = play("progress = sqrt(tool_pos[2] - start_tool_pos[2] - 0.05)", "dense")
    potentials = np.array([infos["next_potential"][0] for _, infos, _ in steps])
    rises = [height - steps[0][2] for *_, height in steps]
    assert potentials[0] == 0 and potentials[-1] > 0 and np.isfinite(potentials).all() and max(rises) > 0.05


def test_an_undefined_reward_is_reported_with_its_terms() -> None:
    with pytest.raises(UserError, match=r"the reward of the program is undefined in a state, with rise 0\.\d+"):
        play("rise = tool_pos[2] - start_tool_pos[2]\nreward = log(0.05 - rise)", "program", num_steps=40)


def test_the_rule_must_pay_what_the_program_computes(tmp_path: Path) -> None:
    path = tmp_path / "lift.txt"
    path.write_text(GOOD_PROGRAMS["lift_cube"])
    assert load_program(path, "lift_cube", "dense").output == "progress"
    with pytest.raises(UserError, match=r"computes `progress`: set reward\.rule=dense, not program"):
        load_program(path, "lift_cube", "program")
    with pytest.raises(UserError, match=r"lift.txt: line 1: unknown name 'point_knob'"):
        path.write_text("progress = point_knob[0]")
        load_program(path, "stack_cubes", "dense")


@pytest.mark.parametrize(
    ("rule", "source"), [("dense", GOOD_PROGRAMS["turn_lever"]), ("program", "reward = joint_lever")]
)
def test_refine_learns_from_a_program(rule: str, source: str, lever_policy: Path, tmp_path: Path) -> None:
    (tmp_path / "program.txt").write_text(source)
    small = ["env.num_envs=4", "iterations=3", "rollout_steps=8", "eval_episodes=2", "final_eval_episodes=2"]
    command = ["refine", "task=turn_lever", f"policy={lever_policy}", f"program={tmp_path}/program.txt", *small]
    command += [f"reward.rule={rule}", "reward.success_source=simulator"]
    assert main([*command, f"out={tmp_path}/run"]) == 0
    assert "turn_lever" in json.loads((tmp_path / "run" / "metrics.json").read_text())["tasks"]


def test_the_rule_program_needs_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["refine", "task=turn_lever", f"policy={tmp_path}", "reward.rule=program"]
    assert main([*command, "reward.success_source=simulator", f"out={tmp_path}/run"]) == 2
    assert "set program=<file of embodied-rm write-reward>" in capsys.readouterr().err.replace("\n", " ")


def test_the_rule_program_needs_the_output_of_a_program() -> None:
    envs = make_envs("lift_cube", EnvConfig(num_envs=1, views=()), ends_on_success=False)
    env = StateRewardEnv(envs, RewardConfig(rule="program", success_source="simulator"), GAMMA)
    env.reset(seed=0)
    with pytest.raises(UserError, match=r"rule=program pays infos\['program_reward'\] \[N\], which the environment"):
        env.check_rule_inputs(rollout_steps=8)
    env.close()


def test_recorded_episodes_have_no_output_of_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "lift.txt"
    program.write_text(GOOD_PROGRAMS["lift_cube"])
    words = ["refine", "task=lift_cube", f"policy={tmp_path}", f"program={program}", "reward.success_source=simulator"]
    assert main([*words, "reward.rule=dense", "algorithm=rlpd", f"recorded_data={tmp_path}"]) == 2
    assert "algorithm=rlpd learns from recorded episodes, which have no output of program=" in capsys.readouterr().err
