"""Fixtures of the tests of teleoperation."""

from browsers import browser, page

__all__ = ["browser", "page"]
