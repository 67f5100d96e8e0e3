# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Write a reward program
#
# A reward program computes a reward from the simulator's state, in lines of arithmetic. You write it, or a language
# model does. It is parsed and interpreted; Python never executes it, and its size bounds time and memory.

# %%
from embodied_rm.programs.critic import criticize
from embodied_rm.programs.describe import describe_language, describe_variables
from embodied_rm.programs.interpreter import evaluate
from embodied_rm.programs.program import parse_program
from embodied_rm.tabletop.program_states import record_states, task_variables
from embodied_sim.registry import make_task

task = make_task("lift_cube")
variables = task_variables(task)
print(describe_variables(variables))
print(describe_language())

# %% [markdown]
# ## A program
#
# It assigns `progress`, which becomes a potential and cannot move the optimum, or `reward`, which is paid as it is.
# Mistakes are found before anything runs: unknown names, points where a number is needed, and all other Python.

# %%
source = """
near = distance(tool_pos, object_pos) < 0.025
held = near and gripper_opening > 0.03 and gripper_opening < 0.05
reach = proximity(distance(tool_pos, object_pos), distance(start_tool_pos, start_object_pos))
close = clip((0.08 - gripper_opening) / 0.04, 0, 1)
lift = (object_pos[2] - start_object_pos[2]) / 0.12
progress = stages(reach, near, close, held, lift)
"""
program = parse_program(source, variables)
print(program.output, program.terms)

# %% [markdown]
# ## Critic
#
# The scripted expert and each kind of failure of the task are recorded. A program is refused if it
# does not end higher for experts than for each kind of failure.

# %%
episodes = record_states(task, num_layouts=4)
print("issues:", criticize(program, episodes))
hack = parse_program("progress = clip((0.08 - gripper_opening) / 0.035, 0, 1)", variables)
for issue in criticize(hack, episodes):
    print(issue.kind, "-", issue.reason)
expert = next(episode for episode in episodes if episode.is_success)
print(evaluate(program, expert.values)["progress"].round(2))

# %% [markdown]
# ## Act on it
#
# A planner tries sequences of actions in copies of the environments, and takes the one with the largest output. Nothing
# is trained, so you see at once what the program asks for. Save its text as `lift.txt`:
#
# ```
# embodied-rm play task=lift_cube policy=planner program=lift.txt
# ```

# %% [markdown]
# ## Learn from it
#
# `refine` rewards a [cloned policy](refine_a_policy.py) by it. `write-reward` lets a language model write and
# improve programs. Every round sees the terms and the learning curve of the best one. `transcript.jsonl` keeps the
# conversation, and repeats the search without a model.
#
# ```
# embodied-rm refine task=lift_cube policy=runs/clone/lift program=lift.txt reward.rule=dense \
#     reward.success_source=simulator
# embodied-rm write-reward task=lift_cube policy=runs/clone/lift writer.url=http://localhost:8000/v1 \
#     writer.model=Qwen3-8B out=runs/write_reward/lift
# embodied-rm write-reward task=lift_cube policy=runs/clone/lift \
#     transcript=runs/write_reward/lift/transcript.jsonl feedback="it drops the cube too early"
# ```
