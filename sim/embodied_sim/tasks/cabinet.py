"""Shared by the tasks with the cabinet: their base class, and templates of tasks that chain other tasks."""

from embodied_sim.control import FloatArray
from embodied_sim.layout import Layout
from embodied_sim.props import Cabinet, Item
from embodied_sim.state import SceneState
from embodied_sim.task import Task


class CabinetTask(Task):
    """Base class of tasks with the cabinet, a red cube and a blue cube; their instructions name the drawer."""

    props = (Cabinet(), Item("red", "red"), Item("blue", "blue"))
    observed_points = ("knob",)

    def extra_observation(self, state: SceneState) -> tuple[FloatArray, ...]:
        """Return the position of the named cube relative to the tray."""
        return (state.object_position() - state.points["tray"],)

    def named_bodies(self, layout: Layout) -> tuple[str, ...]:
        """Return the drawer, and the cube if the instruction names one."""
        return ("drawer", *(super().named_bodies(layout) if self.distinguishes_objects else ()))


def chain_templates(*subgoals: Task) -> tuple[str, ...]:
    """Join the templates of consecutive tasks pairwise with "; then "."""
    return tuple(map("; then ".join, zip(*(subgoal.templates for subgoal in subgoals), strict=True)))
