"""What the tasks with the cabinet share: the table with cabinet, red cube and blue cube, and tasks made of others."""

from __future__ import annotations

from embodied_sim.control import FloatArray
from embodied_sim.props import Cabinet, Item
from embodied_sim.state import SceneState
from embodied_sim.task import Task


class CabinetTask(Task):
    """A task on the table with the cabinet and two cubes; a subclass says what is to be done there."""

    props = (Cabinet(), Item("red", "red"), Item("blue", "blue"))
    observed_points = ("knob",)

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """The named cube as seen from the tray."""
        return (state.object_position() - state.points["tray"],)


def chain_templates(*subgoals: Task) -> tuple[str, ...]:
    """The templates of a task that is these tasks, one after the other: first with first, second with second."""
    return tuple(
        "; then ".join(sentences) for sentences in zip(*(subgoal.templates for subgoal in subgoals), strict=True)
    )
