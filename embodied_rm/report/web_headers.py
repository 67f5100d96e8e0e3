"""What a page that is served is sent with: it loads and reaches nothing but what serves it."""

from __future__ import annotations

CONTENT_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
"""Ending of a file -> its content type; all of them are in UTF-8."""
SHARED_ASSETS = ("look.css", "elements.js")
"""Files of this package that every such page is made of."""


def security_headers(*extra_policies: str) -> dict[str, str]:
    """The headers of a page and of its parts; `more`: what else its policy allows, as "media-src blob:"."""
    policies = ("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", *extra_policies)
    policies += ("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
    return {
        "Content-Security-Policy": "; ".join(policies),
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
