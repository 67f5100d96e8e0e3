# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Score a clip
#
# A reward model reads frames and an instruction. It returns progress, success and uncertainty per frame. You need
# frames as `uint8 [T, H, W, 3]`; where they come from does not matter.

# %%
import subprocess
from pathlib import Path

import numpy as np

import embodied_rm as erm

# %% [markdown]
# ## A video to score
#
# Here the simulator records one: an expert opens a drawer in front of two cameras. A recording of your own is a
# folder with one mp4 per camera: `open_dataset(folder, instruction="open the drawer")` opens it.

# %%
folder = Path("runs/tutorials/score")
if not folder.exists():
    keys = ["tasks=[open_drawer]", "num_successes=1", "num_failures=1", "env.num_envs=2", f"out={folder}"]
    subprocess.run(["embodied-rm", "collect", *keys], check=True)
data = erm.open_dataset(folder)
episode = next(iter(data))
print(episode.instruction, {name: frames.shape for name, frames in episode.views.items()})

# %% [markdown]
# ## Score it
#
# The default model knows the cameras `front`, `side` and `wrist` of the simulated tasks; `load_reward_model("real")`
# is for video of a real robot. A frame's output depends on earlier frames only, so a robot would see the same scores
# online.

# %%
model = erm.load_reward_model()
output = model.score(episode.views, episode.instruction)
for t in range(0, len(output), 5):
    print(f"frame {t:3d}  progress {output.progress[t]:.2f}  success {output.success[t]:.2f}  done {output.done[t]}")

# %% [markdown]
# ## Ask for something else
#
# The same frames, with another instruction, should score lower. This is how you find out whether a model reads the
# instruction at all.

# %%
other = model.score(episode.views, "lift the red cube")
print(f"progress at the end: {output.progress[-1]:.2f}, of the other instruction: {other.progress[-1]:.2f}")
assert np.isfinite(output.progress).all()

# %% [markdown]
# ## When the camera is another one
#
# A view that the model does not know is an error that names both lists. Use a demonstration or the model `real` (see
# *Real robots*), or train a model on your cameras: see *Train from a LeRobot dataset*.

# %%
try:
    model.score({"overhead": episode.views["front"]}, episode.instruction)
except erm.UserError as error:
    print(error)
