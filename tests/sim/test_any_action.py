"""Whatever finite actions are sent, 100,000 of them a run: every number that comes back is one."""

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
LARGEST = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float32).smallest_subnormal)
EDGES = (0.0, -0.0, 1.0, -1.0, LARGEST, -LARGEST, TINY, -TINY, 1.0 + 2**-23, 1e-30, 1e30)


@st.composite
def plans(draw: st.DrawFn) -> np.ndarray:
    """Actions float32 [STEPS, ROWS, 4] out of a few values, each kept for a while: pushing, trembling, tiny, huge."""
    value = st.sampled_from(EDGES) | st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(-1, 1)
    palette = np.array(draw(st.lists(value, min_size=2, max_size=6)), np.float32)
    kept = draw(st.sampled_from([1, 2, 7, STEPS]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.choice(palette, (-(-STEPS // kept), ROWS, 4)).repeat(kept, axis=0)[:STEPS]


@pytest.mark.parametrize(("task", "robot"), SCENES)
def test_any_finite_actions_give_finite_numbers_in_their_range(task: str, robot: str) -> None:
    """100 plans of 63 steps in 16 worlds: 100,800 actions; the episodes that end within are begun anew."""
    assert len(SCENES) * EXAMPLES * STEPS * ROWS >= 100_000
    env = TabletopVecEnv(task, ROWS, robot=robot)
    played = 0

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(plan=plans(), seed=st.integers(0, 2**31))
    def check(plan: np.ndarray, seed: int) -> None:
        nonlocal played
        env.reset(seed=seed)
        for actions in plan:
            obs, reward, _, _, info = env.step(actions)
            for seen in (obs, info["final_obs"]):
                assert env.observation_space.contains(seen) and np.isfinite(seen).all()
            assert np.isin(reward, (0.0, 1.0)).all()
            for told in (info, info["final_info"]):
                assert ((told["progress"] >= 0) & (told["progress"] <= 1)).all()
                assert not told["diverged"].any()
            played += ROWS

    check()
    env.close()
    assert played == EXAMPLES * STEPS * ROWS
