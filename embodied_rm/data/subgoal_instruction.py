"""The instruction of an episode whose task changes."""

from collections.abc import Iterable
from itertools import groupby

from embodied_rm.types import SUBGOAL_SEPARATOR


def join_subgoals(tasks: Iterable[str]) -> str:
    """Return the tasks of an episode in single spaces as sub-goals of one instruction.

    Those that are blank are left out, and one that is repeated at once counts once.
    """
    names = (" ".join(task.split()) for task in tasks)
    return SUBGOAL_SEPARATOR.join(name for name, _ in groupby(filter(None, names)))
