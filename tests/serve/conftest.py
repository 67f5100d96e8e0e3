"""A browser for the pages of services."""

from browsers import browser, page

__all__ = ["browser", "page"]
