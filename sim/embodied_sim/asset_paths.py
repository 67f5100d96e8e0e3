"""Folder of the robot files: inside the installed package, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parent
PACKAGED_DIR = PACKAGE_DIR / "robot_files"
ROBOTS_DIR = PACKAGED_DIR if PACKAGED_DIR.is_dir() else PACKAGE_DIR.parents[1] / "assets" / "robots"
