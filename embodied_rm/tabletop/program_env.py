"""Tabletop environments whose progress, or an additional reward, is that of a reward program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from embodied_rm.errors import UserError
from embodied_rm.programs.interpreter import evaluate
from embodied_rm.programs.program import OutputKind, Program, read_program
from embodied_rm.tabletop.program_states import state_values, task_variables
from embodied_sim.registry import make_task

RULE_OF_OUTPUT: dict[OutputKind, str] = {"progress": "dense", "reward": "program"}
"""Output of a program -> the reward rule that pays it: progress as a potential, a reward as it is."""


class ProgramEnv(gym.vector.VectorWrapper):
    """Puts the output of a program into the infos of `TabletopVecEnv`: as `progress`, or as `program_reward`.

    Progress that is undefined in some state is an invalid score there, which keeps the last one. A reward must be
    defined everywhere: `step` raises `UserError` otherwise.
    """

    def __init__(self, env: gym.vector.VectorEnv, program: Program) -> None:
        super().__init__(env)
        self.program = program

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        observation, infos = self.env.reset(seed=seed, options=options)
        return observation, self._add_output(infos)

    def step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        return observation, reward, terminated, truncated, self._add_output(infos)

    def _add_output(self, infos: dict[str, Any]) -> dict[str, Any]:
        env: Any = self.env.unwrapped
        terms = evaluate(self.program, state_values(env.state, env.start_state))
        output = terms[self.program.output]
        if self.program.output == "progress":
            return {**infos, "progress": output.astype(np.float32)}
        undefined = np.flatnonzero(~np.isfinite(output) & ~infos["diverged"])
        if len(undefined):
            values = ", ".join(f"{name} {value[undefined[0]]}" for name, value in terms.items() if value.ndim == 1)
            raise UserError(f"the reward of the program is undefined in a state, with {values}")
        return {**infos, "program_reward": output}


def load_program(path: Path, task: str, rule: str) -> Program:
    """Read the program of a task; `UserError` unless the rule pays what it computes."""
    program = read_program(path, task_variables(make_task(task)))
    fitting = RULE_OF_OUTPUT[program.output]
    if rule != fitting:
        raise UserError(f"{path} computes `{program.output}`: set reward.rule={fitting}, not {rule}")
    return program
