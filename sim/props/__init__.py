"""Things that stand on the table: items that move freely and fixtures that keep their place. One file a kind."""

from sim.props.base import Fixture, Item, Prop, Shape
from sim.props.bowl import Bowl
from sim.props.cabinet import Cabinet
from sim.props.slider import Slider
from sim.props.trays import Trays
from sim.props.zones import Zones

__all__ = ["Bowl", "Cabinet", "Fixture", "Item", "Prop", "Shape", "Slider", "Trays", "Zones"]
