"""The exact prompts of released models, as in their training.

`{instruction}` is replaced by the instruction, `<image>` by an image. Sources: `docs/released_models.md`.
"""
# ruff: noqa: E501

ROBO_DOPAMINE_PROMPT = """
You are a rigorous, impartial vision evaluator for robot task progress. Your job is to judge whether the AFTER image set moves closer to the task objective than the BEFORE image set, using the provided reference examples only as anchors.

<Task>
`{instruction}`

REFERENCE EXAMPLES (for visual anchoring only; not necessarily this run's actual START/END):
- REFERENCE START — Robot Front Image (task just starting): <image>
- REFERENCE END — Robot Front Image (task fully completed): <image>
</Task>

BEFORE Robot Front Image: <image>
BEFORE Robot Left Wrist Image: <image>
BEFORE Robot Right Wrist Image: <image>

AFTER Robot Front Image: <image>
AFTER Robot Left Wrist Image: <image>
AFTER Robot Right Wrist Image: <image>

Goal
Compare the BEFORE and AFTER three-view sets and judge whether AFTER moves closer to accomplishing the task than BEFORE, using the REFERENCE START/END images as conceptual anchors.

Progress Estimation (no formulas)
1) Calibrate using the references:
   - REFERENCE START = “just beginning”; REFERENCE END = “fully completed.”
   - Visually estimate how far BEFORE and AFTER are along this START→END continuum.
2) Direction:
   - AFTER better than BEFORE → positive score.
   - AFTER worse than BEFORE → negative score.
   - Essentially the same → 0.
3) Normalize to an integer percentage in [-100%, +100%]:
   - For improvements, scale the improvement relative to what remained from BEFORE to END.
   - For regressions, scale the deterioration relative to how far BEFORE had progressed from START.
   - Clip to [-100%, +100%] and round to the nearest integer percent.

Evaluation Criteria (apply across all three views)
1) Task Alignment: Evidence directly tied to `{instruction}`.
2) Completeness & Accuracy: Correct pose, contact, placement, orientation, grasp quality, absence of collisions, stability, etc.
3) View-Specific Evidence & Consistency:
   - Use the **Front** view for global layout, object pose, approach path, end-state geometry, and scene-level constraints.
   - Use the **Left/Right Wrist** views to inspect **fine-grained gripper state** (finger closure, contact location/area, slippage, wedge/misalignment, object deformation, cable/wire/cloth entanglement, unintended contact, occluded collisions).
   - When views disagree, prioritize the view that provides **decisive cues** for the criterion at hand. In particular, wrist views often **override** for grasp/contact validity and safety.
   - If any single view shows a failure that invalidates success (e.g., mis-grasp, collision, unsafe/unstable pose), let that override when judging progress.
4) Ignore Irrelevant Factors: Lighting, color shifts, background clutter, or UI/watermarks that don't affect task success.
5) Ambiguity: If evidence is genuinely inconclusive or conflicting without decisive cues, treat progress as unchanged → 0%.

Output Format (STRICT)
Return ONLY one line containing the score wrapped in <score> tags, as an integer percentage with a percent sign:
<score>+NN%</score>  or  <score>-NN%</score>  or  <score>0%</score>
"""
"""Images: reference start and end; front, left and right before; front, left and right after."""

ROBO_REWARD_PROMPT = """Given the task, assign a discrete progress score reward (1,2,3,4,5) for the robot in the video in the format: ANSWER: <score>
Rubric for end-of-episode progress (judge only the final state without time limits):
1 - No Success: Final state shows no goal-relevant change for the command.
2 - Minimal Progress: Final state shows a small but insufficient change toward the goal.
3 - Partial Completion: The final state shows good progress toward the goal but violates more than one requirement or a major requirement.
4 - Near Completion: Final state is correct in region and intent but misses a single minor requirement.
5 - Perfect Completion: Final state satisfies all requirements.

Task: {instruction}"""
"""Placed after the video."""

LRM_CONTRASTIVE_PROMPT = """Task: Compare the completion progress.

The task is: {instruction}.

You are given:
- Later observation (Image A): <image>
- Later observation (Image B): <image>

Question: Which of Image A or Image B is closer to completing the task?
Select one value from the following list:
["ImageA", "ImageB"]

Please provide a step-by-step visual analysis first, and then output your answer in the following JSON format:
{ "more_complete_image": "selected_value" }"""
"""Images: the last scored frame and the current frame."""

LRM_COMPLETION_PROMPT = """Task: Whether the task has been completed.

The task is: {instruction}

You are given:
- Current observation: <image>

Has the task been completed?
Output your answer in the following JSON format:
{ "task_completed": "yes" or "no" }"""
"""Image: the current frame. White space around the pieces of text is removed."""

LRM_PROGRESS_PROMPT = """Task: Estimate the completion progress.
The task is: {instruction}
You are given:
- Initial observation: <image>
- Current observation: <image>

Question: Based on the task description, estimate the completion progress as a value between 0.0 and 1.0.
Select one value from the following list:
[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]

Definitions:
- 0.0: Task has just started.
- 0.1 - 0.9: Intermediate progress steps (assess how close to completion).
- 1.0: Task is Finished.
Output your answer in the following JSON format:
{ "completion_progress": selected_value }"""
"""Images: the first frame and the current frame."""

LRM_GOAL_PROGRESS_PROMPT = """Task: Estimate the completion progress.
The task is: {instruction}
You are given:
- Goal Standard: <image>
- Initial observation: <image>
- Current observation: <image>

Question: Compare the Current Observation with the Goal Standard. Estimate the completion progress as a value between 0.0 and 1.0.
Select one value from the following list:
[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]

Definitions:
- 0.0: Task has just started.
- 0.1 - 0.9: Intermediate progress steps (assess visual distance to Goal).
- 1.0: Task is Finished.
Output your answer in the following JSON format:
{ "completion_progress": selected_value }"""
"""Images: the goal image, the first frame and the current frame."""

VLAC_SYSTEM_PROMPT = """You are a visual-language assistant designed to interpret spatial and task-related information from images and text. Provide precise, context-aware responses and actionable guidance to assist in achieving task objectives."""

VLAC_CRITIC_PROMPT = """Image-1: <image>
Image-2: <image>
Compare two images and evaluate whether the second image is closer to achieving task objectives compared to the first image. + score means the second image is closer, - score means the first image is closer
Response the relative progressing of target task follow <score>. The target task is: <task> {instruction} </task> <score>"""
"""Images: the last scored frame and the current frame."""

VLAC_DONE_PROMPT = """<image>The 1 means yes, the 0 means no. Check if the robot has completed its task: <task> {instruction} </task> <done>"""
"""Image: the current frame. It precedes the text, which has no place for it."""

VLAC_GOAL_DONE_PROMPT = """<goal> <task> {instruction} </task>: <image>
<goal>
<image>
 The 1 means yes, the 0 means no. Refer to the goal, check if the robot has completed its task: <task> {instruction} </task> <done>"""
"""Images: the goal image and the current frame."""

ROBOMETER_PROMPT = """The task for the robot is '{instruction}'. Given the trajectory video, predict the task progress at each frame, how far along the robot is towards completing the task, a float between 0 and 1, where 0 is the starting state and 1 is when the task is completed. If the robot is not performing the same task, predict 0 progress."""
"""Followed by the frames of a video, with one token after each frame."""

TOPREWARD_PROMPT = """The above video shows a robot manipulation trajectory that completes the following task: """
"""Placed after the video. The turn of the user does not end after it; the statement follows."""

TOPREWARD_STATEMENT = """{instruction} Decide whether the above statement is True or not. The answer is: True"""
"""Its last token is the answer whose probability is read."""
