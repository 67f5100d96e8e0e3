# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Train from a LeRobot dataset
#
# Training needs episodes with known progress: annotated subtasks, or a progress column. After `embodied-rm convert`,
# `embodied-rm annotate` adds subtasks in the browser. Here the simulator records a dataset in the LeRobot v3.0 format.

# %%
import os
import subprocess
from pathlib import Path

import embodied_rm as erm

STEPS = int(os.environ.get("TUTORIAL_STEPS", "600"))
folder = Path("runs/tutorials/train")

# %%
if not folder.exists():
    keys = ["tasks=[open_drawer]", "num_successes=8", "num_failures=4", "env.num_envs=4", f"out={folder / 'demos'}"]
    subprocess.run(["embodied-rm", "collect", *keys], check=True)
    keys = ["tasks=[open_drawer]", "num_successes=4", "num_failures=4", "env.num_envs=4", "seed=1"]
    subprocess.run(["embodied-rm", "collect", *keys, f"out={folder / 'unseen'}"], check=True)

# %% [markdown]
# ## Open it
#
# `open_dataset` reads LeRobot v2.1 and v3.0, mp4 files, tables of them, robomimic and Minari. Episodes with an
# issue are left out by name: `data.issues` says why.

# %%
data = erm.open_dataset(folder / "demos")
print(len(data), "episodes, views", data.views, "issues", list(data.issues))
print(data.meta[0].instruction, data.meta[0].subtasks)

# %% [markdown]
# ## Train
#
# The fields of `TrainConfig` are arguments: `steps`, `image_size`, `encoder`, `label_schemes` and so on.

# %%
model = erm.train(data, steps=STEPS)

# %% [markdown]
# ## Evaluate on episodes that it never saw
#
# `voc` is the rank correlation of progress with time on successes; `mae_failures` is the mean error of progress on
# failures; the baselines see no image.

# %%
table = model.evaluate(erm.open_dataset(folder / "unseen"))
for name in ("voc", "mae_successes", "mae_failures", "success_auc"):
    print(f"{name:14s} {table['reward_model'].get(name, float('nan')):.3f}")

# %% [markdown]
# ## Keep it

# %%
model.save(folder / "model", overwrite=True)
print(erm.load_reward_model(folder / "model").input_spec)
