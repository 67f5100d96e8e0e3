# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # A reward in your Gymnasium environment
#
# `LearnedReward` wraps any Gymnasium environment, one or a vector, in any autoreset mode. The reward becomes the
# environment's own plus the model's progress, shaped so that the optimal policy stays the same.

# %%
import gymnasium as gym
import numpy as np

import embodied_rm as erm
import embodied_sim  # noqa: F401  registers the simulated tasks with Gymnasium

# %% [markdown]
# ## One environment
#
# It must draw itself: make it with `render_mode="rgb_array"`, or pass `get_frames`.

# %%
model = erm.load_reward_model()
env = gym.make("embodied_rm/OpenDrawer-v0", views=("front",), image_size=64, render_mode="rgb_array")
env = erm.LearnedReward(env, model, instruction="open the drawer", gamma=0.98)
observation, info = env.reset(seed=0)
for _ in range(3):
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    print(f"reward {reward:+.4f}  potential {info['next_potential']:.3f}")

# %% [markdown]
# ## A vector of environments
#
# These environments reset a row within the step that ends it. `final_views=True` keeps the frames before the reset,
# which the last reward is computed from. `gamma` must be the learner's discount.

# %%
keys = {"views": ("front", "wrist"), "image_size": 64, "final_views": True}
envs = gym.make_vec("embodied_rm/OpenDrawer-v0", num_envs=4, **keys)
envs = erm.LearnedReward(envs, model, instruction=lambda envs: envs.instructions, gamma=0.98)
observations, infos = envs.reset(seed=0)
observations, rewards, terminated, truncated, infos = envs.step(np.zeros((4, 4), np.float32))
print("rewards", rewards.round(4))
assert np.isfinite(rewards).all()
envs.close()

# %% [markdown]
# ## Frames from somewhere else
#
# `get_frames(env, observation, rows)` returns a view name -> `uint8 [n, H, W, 3]`. An environment whose observation
# holds an image needs one line: `LearnedReward(env, model, instruction=..., get_frames=get_frames)`.


# %%
def get_frames(env, observation, rows):
    """Return the image in the observation as the model's front view."""
    return {"front": np.asarray(observation["pixels"])[rows]}
