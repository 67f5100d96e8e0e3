"""Where the recordings of real robots lie. They are read from there and never copied."""

from pathlib import Path

REAL_DATA = Path(__file__).parents[1].parent / "shared" / "data"
