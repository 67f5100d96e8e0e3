"""What the tasks with the cabinet share: the table with cabinet, red cube and blue cube, and tasks made of others."""

from __future__ import annotations

from sim.control import FloatArray
from sim.props import Cabinet, Item
from sim.state import SceneState
from sim.task import Task


class CabinetTask(Task):
    """A task on the table with the cabinet and two cubes; a subclass says what is to be done there."""

    props = (Cabinet(), Item("red", "red"), Item("blue", "blue"))
    watched = ("knob",)

    def extra(self, state: SceneState) -> tuple[FloatArray, ...]:
        """The named cube as seen from the tray."""
        return (state.object() - state.points["tray"],)


def one_after_another(*wishes: Task) -> tuple[str, ...]:
    """The templates of a task that is these tasks, one after the other: first with first, second with second."""
    return tuple("; then ".join(told) for told in zip(*(wish.templates for wish in wishes), strict=True))
