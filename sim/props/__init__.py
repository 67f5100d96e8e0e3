"""Things that stand on the table: items that move freely and fixtures that keep their place. One file a kind."""

from sim.props.base import Fixture, Item, Prop, Shape
from sim.props.cabinet import Cabinet

__all__ = ["Cabinet", "Fixture", "Item", "Prop", "Shape"]
