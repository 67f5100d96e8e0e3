"""Any finite actions, 100,000 per run, give finite results in their ranges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_sim.vec_env import TabletopVecEnv

ROWS, STEPS, EXAMPLES = 16, 63, 20
SCENES = (
    ("lift_cube", "panda"),
    ("push_to_zone", "six_axis"),
    ("press_button", "six_axis"),
    ("cube_in_drawer", "panda"),
    ("insert_peg", "panda"),
)
MAX_FLOAT = float(np.finfo(np.float32).max)
MIN_FLOAT = float(np.finfo(np.float32).smallest_subnormal)
EDGE_VALUES = (0.0, -0.0, 1.0, -1.0, MAX_FLOAT, -MAX_FLOAT, MIN_FLOAT, -MIN_FLOAT, 1.0 + 2**-23, 1e-30, 1e30)


@st.composite
def action_sequences(draw: st.DrawFn) -> np.ndarray:
    """Draw actions float32 [STEPS, ROWS, 4] from a few values, each held for some steps."""
    value = st.sampled_from(EDGE_VALUES) | st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(-1, 1)
    palette = np.array(draw(st.lists(value, min_size=2, max_size=6)), np.float32)
    hold_steps = draw(st.sampled_from([1, 2, 7, STEPS]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.choice(palette, (-(-STEPS // hold_steps), ROWS, 4)).repeat(hold_steps, axis=0)[:STEPS]


@pytest.mark.parametrize(("task", "robot"), SCENES)
def test_finite_actions_give_finite_results_in_range(task: str, robot: str) -> None:
    """100 sequences of 63 steps in 16 environments with autoreset: 100,800 actions."""
    assert len(SCENES) * EXAMPLES * STEPS * ROWS >= 100_000
    env = TabletopVecEnv(task, ROWS, robot=robot)
    played = 0

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(sequence=action_sequences(), seed=st.integers(0, 2**31))
    def check(sequence: np.ndarray, seed: int) -> None:
        nonlocal played
        env.reset(seed=seed)
        for actions in sequence:
            obs, reward, _, _, info = env.step(actions)
            for observation in (obs, info["final_obs"]):
                assert env.observation_space.contains(observation) and np.isfinite(observation).all()
            assert np.isin(reward, (0.0, 1.0)).all()
            for values in (info, info["final_info"]):
                assert ((values["progress"] >= 0) & (values["progress"] <= 1)).all()
                assert not values["diverged"].any()
            played += ROWS

    check()
    env.close()
    assert played == EXAMPLES * STEPS * ROWS
