"""Objects on the table: items, which move freely, and fixtures, which do not move."""

from embodied_sim.props.bowl import Bowl
from embodied_sim.props.button import Button
from embodied_sim.props.cabinet import Cabinet
from embodied_sim.props.lever import Lever
from embodied_sim.props.peg import Peg, Pegboard
from embodied_sim.props.prop import Fixture, Item, Prop
from embodied_sim.props.side_targets import Slider, Trays, Zones

__all__ = [
    "Bowl", "Button", "Cabinet", "Fixture", "Item", "Lever", "Peg", "Pegboard", "Prop", "Slider", "Trays", "Zones",
]  # fmt: skip
