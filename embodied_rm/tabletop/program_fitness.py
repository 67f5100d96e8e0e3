"""How a policy learned from a reward program: its learning curve, and the terms in episodes of the refined policy."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any

import numpy as np

from embodied_rm.programs.candidate import TermStats
from embodied_rm.programs.interpreter import evaluate
from embodied_rm.programs.program import Program
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.watch.evaluate_policy import EVAL_SEED_STREAM, stream_seed
from embodied_rm.tabletop.envs import EnvConfig, make_envs
from embodied_rm.tabletop.program_states import state_values
from embodied_sim.vec_env import TabletopVecEnv

NUM_EPISODES = 32  # episodes in which the terms are measured


def measure_terms(
    task: str, policy: GaussianPolicy, program: Program, config: EnvConfig, seed: int
) -> tuple[dict[str, TermStats], dict[str, int]]:
    """Return the mean of each term of a program over episodes of a policy, and how these ended."""
    with closing(make_envs(task, config, ends_on_success=True)) as envs:
        steps, endings = play_policy(envs, policy, program, stream_seed(seed, EVAL_SEED_STREAM, 1))
    terms = {}
    for name in program.terms:
        curves = [np.array([step[name] for step in episode]) for episode in steps]
        if curves[0].ndim == 1:  # the mean of points says nothing
            points = [(curve[0], curve[len(curve) // 2], curve[-1]) for curve in curves]
            start, middle, end = np.mean(points, axis=0).tolist()
            terms[name] = TermStats(start=start, middle=middle, end=end)
    return terms, endings


def play_policy(
    envs: TabletopVecEnv, policy: GaussianPolicy, program: Program, seed: int
) -> tuple[list[list[dict[str, Any]]], dict[str, int]]:
    """Play one episode per environment; return the terms of each step per episode, and the number of each ending."""
    observation, infos = envs.reset(seed=seed)
    episodes: list[list[dict[str, Any]]] = [[] for _ in range(envs.num_envs)]
    running, endings = np.ones(envs.num_envs, bool), Counter[str]()
    while running.any():
        terms = evaluate(program, state_values(envs.state, envs.start_state))
        for row in np.flatnonzero(running):
            episodes[row].append({name: value[row] for name, value in terms.items()})
        action = np.clip(policy.act(observation), -1.0, 1.0)
        observation, _, terminated, truncated, infos = envs.step(action.astype(np.float32))
        for row in np.flatnonzero(running & (terminated | truncated)):
            stage = envs.subtask_names[int(infos["subtask"][row])]
            endings["succeeded" if infos["success"][row] else f"ended during the part {stage!r}"] += 1
        running &= ~(terminated | truncated)
    return episodes, dict(endings.most_common())
