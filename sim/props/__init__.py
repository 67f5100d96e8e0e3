"""Things that stand on the table: items that move freely and fixtures that keep their place. One file a kind."""

from sim.props.base import Fixture, Item, Prop, Shape
from sim.props.bowl import Bowl
from sim.props.button import Button
from sim.props.cabinet import Cabinet
from sim.props.lever import Lever
from sim.props.peg import Peg
from sim.props.pegboard import Pegboard
from sim.props.slider import Slider
from sim.props.trays import Trays
from sim.props.zones import Zones

__all__ = [
    "Bowl",
    "Button",
    "Cabinet",
    "Fixture",
    "Item",
    "Lever",
    "Peg",
    "Pegboard",
    "Prop",
    "Shape",
    "Slider",
    "Trays",
    "Zones",
]
