"""HTTP headers of local web pages: they may load from and connect to their own server only."""

CONTENT_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
"""File extension -> content type. All files are UTF-8."""
SHARED_ASSETS = ("look.css", "elements.js")  # files of this package that all local pages use


def security_headers(*extra_policies: str) -> dict[str, str]:
    """Return the headers of a page and its assets. `extra_policies`: further permissions, e.g. "media-src blob:"."""
    policies = ("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", *extra_policies)
    policies += ("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
    return {
        "Content-Security-Policy": "; ".join(policies),
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
