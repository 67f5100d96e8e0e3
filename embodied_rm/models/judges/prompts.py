"""All prompts of this package's questions; `{instruction}` is replaced by the instruction of the episode."""

SYSTEM_PROMPT = (
    "You watch a robot at work and judge how far its task is, by what the pictures show and by nothing else."
)

TASK_HEADER = "The task of the robot: {instruction}\n"
FIRST_FRAME_HEADER = "Before it began:\n"
PREVIOUS_FRAME_HEADER = "A moment ago:\n"
CURRENT_FRAME_HEADER = "Now:\n"
GOAL_HEADER = "How it looks when the task is done:\n"
HISTORY_HEADER = "What it did so far, in this order:\n"
VIEW_LABEL = "camera {name}: "
FRAME_LABEL = "moment {number}: "

PROGRESS_QUESTION = (
    "How much of the task is done now? 0% is as it was before it began, 100% is done. What was undone again does not "
    "count. Answer with one line, <progress>N%</progress>, where N is a whole number."
)
COMPLETION_QUESTION = "Is the task done now? Answer with one word, yes or no."
CLOSER_QUESTION = (
    "Is the task closer to being done now (B) than it was a moment ago (A)? Answer with one letter: B if it is closer "
    "now, A if it was closer a moment ago, C if there is no difference."
)
RUBRIC_QUESTION = (
    "How far did the robot get with the task?\n"
    "1: nothing that the task asks for\n"
    "2: hardly anything\n"
    "3: part of it\n"
    "4: nearly all of it, but not all\n"
    "5: all of it\n"
    "Answer with one line, ANSWER: N, where N is a number from 1 to 5."
)
RUBRIC_CHOICE_QUESTION = RUBRIC_QUESTION.rsplit("\n", 1)[0] + "\nAnswer with the number alone."
REMAINING_QUESTION = (
    "List the steps that are still to be done, one a line, the next one first; write none if nothing is left. Then say "
    "how much of the whole task is done, 0% to 100%, in one line: <progress>N%</progress>."
)
TRUE_QUESTION = 'The pictures show a robot doing this from beginning to end: "{instruction}". True or false?'
SHUFFLED_QUESTION = (
    "The pictures below show moments of a robot at this task, in no particular order. The first one shows the task "
    "before it began, where 0% is done. Say for each of the others how much of the task is done, one a line: "
    "moment N: <progress>M%</progress>."
)
