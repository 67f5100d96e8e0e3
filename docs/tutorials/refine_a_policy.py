# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Refine a cloned policy
#
# Behavior cloning gives a policy that succeeds sometimes. PPO refines it on the learned reward alone: the
# simulator's own reward is not used, and its success only evaluates the policy before and after.

# %%
import json
import os
import subprocess
from pathlib import Path

from gymnasium.vector import AutoresetMode

import embodied_rm as erm
from embodied_sim.vec_env import TabletopVecEnv

ITERATIONS = int(os.environ.get("TUTORIAL_ITERATIONS", "20"))
EPISODES = int(os.environ.get("TUTORIAL_EPISODES", "100"))
folder = Path("runs/tutorials/refine")

# %% [markdown]
# ## Clone
#
# Three demonstrations are few. The policy learns what the expert did in states that it saw, and fails elsewhere.

# %%
if not folder.exists():
    keys = ["tasks=[lift_cube]", "num_successes=3", "num_failures=1", "env.num_envs=4", f"out={folder / 'demos'}"]
    subprocess.run(["embodied-rm", "collect", *keys], check=True)
policy = erm.clone(erm.open_dataset(folder / "demos"), steps=1500, log_std_init=-1.0)

# %% [markdown]
# ## Environments with a learned reward
#
# `success_source="model"`: the model's sustained success ends an episode and is rewarded.

# %%
common = {"views": ("front", "wrist"), "image_size": 64, "autoreset_mode": AutoresetMode.DISABLED}
envs = erm.LearnedReward(
    TabletopVecEnv("lift_cube", num_envs=16, ends_on_success=False, **common),
    erm.load_reward_model(),
    instruction=lambda envs: envs.instructions,
    success_source="model",
)

# %% [markdown]
# ## Refine

# %%
eval_envs = TabletopVecEnv("lift_cube", num_envs=16, autoreset_mode=AutoresetMode.DISABLED)
refined = erm.refine(
    envs,
    policy,
    eval_envs=eval_envs,
    final_eval_episodes=EPISODES,
    folder=folder / "run",
    iterations=ITERATIONS,
    critic_warmup_iterations=1,
)

# %% [markdown]
# ## Look at the result
#
# `metrics.json` has the simulator's success rates before and after. `progress.jsonl` has one row per iteration, with
# the success rate that the reward model predicts. Believe it if the simulator's has risen too.

# %%
metrics = json.loads((folder / "run" / "metrics.json").read_text())
print(metrics["cloned_success"]["rate"], metrics["refined_success"]["rate"])
print((folder / "run" / "progress.jsonl").read_text().splitlines()[-1][:300])
assert refined.spec == policy.spec
