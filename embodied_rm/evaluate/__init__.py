"""Compare a reward model with annotation: order, error, success and step, beside curves that see nothing."""

from embodied_rm.evaluate.blind import blind
from embodied_rm.evaluate.compare import Truth, blind_tables, evaluate, model_table, truths
from embodied_rm.evaluate.curve_table import actor_tau, finish, progress_table
from embodied_rm.evaluate.goals import goal_rows
from embodied_rm.evaluate.judged import Judged, backward, joined, judge
from embodied_rm.evaluate.verdict_table import doubt_table, doubts, step_accuracy, verdict_table, verdicts

__all__ = [
    "Judged",
    "Truth",
    "actor_tau",
    "backward",
    "blind",
    "blind_tables",
    "doubt_table",
    "doubts",
    "evaluate",
    "finish",
    "goal_rows",
    "joined",
    "judge",
    "model_table",
    "progress_table",
    "step_accuracy",
    "truths",
    "verdict_table",
    "verdicts",
]
