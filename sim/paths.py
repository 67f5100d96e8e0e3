"""Where the scenes and robots lie: inside the installed package, or beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
ASSETS = HERE / "assets" if (HERE / "assets").is_dir() else HERE.parent / "assets"
