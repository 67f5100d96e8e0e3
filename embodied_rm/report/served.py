"""What a page that is served is sent with: it loads and reaches nothing but what serves it."""

from __future__ import annotations

KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
"""Ending of a file -> its content type; all of them are in UTF-8."""
SHARED = ("look.css", "elements.js")
"""Files of this package that every such page is made of."""


def guards(*more: str) -> dict[str, str]:
    """The headers of a page and of its parts; `more`: what else its policy allows, as "media-src blob:"."""
    policy = ("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", *more)
    policy += ("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
    return {
        "Content-Security-Policy": "; ".join(policy),
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
