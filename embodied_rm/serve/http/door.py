"""Who may come in: whoever shows the key, or where there is none, whoever is no web page of somebody else's."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping

from starlette.datastructures import Headers

from embodied_rm.serve.config import loopback
from embodied_rm.serve.refusal import RefusalError, Why

OPEN = ("/v2/health/live", "/v2/health/ready")
"""Paths that need no key: whether the service is there is no secret."""


class Door:
    """Looks at the headers of a request, before anything of its body is read."""

    def __init__(self, key: str | None) -> None:
        self._key = key

    def refuse(self, path: str, headers: Headers) -> None:
        """Raises `RefusalError` for whoever may not come in."""
        if path in OPEN:
            return
        if self._key is None:
            refuse_foreign(headers)
            return
        refuse_key(shown(headers), self._key)
        if remembered(headers):
            refuse_other_origin(headers)


def refuse_key(told: str, key: str) -> None:
    """Raises `RefusalError` for another key, in a time that says nothing of how much of it was right."""
    if not hmac.compare_digest(told.encode(), key.encode()):
        raise RefusalError(Why.NO_KEY, "show the key of this service: Authorization: Bearer <key>")


def shown(headers: Mapping[str, str]) -> str:
    """The key that is shown, however; none is an empty one. `headers`: of HTTP, or of gRPC by their names in lower
    case."""
    if (key := headers.get("x-api-key")) is not None:
        return key
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":  # as browsers ask for it: any name, the key for a password
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def remembered(headers: Headers) -> bool:
    """Whether a browser may have shown the key by itself, whoever's page made it ask."""
    return headers.get("authorization", "").lower().startswith("basic ")


def refuse_foreign(headers: Headers) -> None:
    """A browser on this machine shows pages of strangers, which may try to speak to services on it: they come from
    another origin, or by another name. Raises `RefusalError` for those."""
    host = headers.get("host", "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if host and not loopback(name.strip("[]")):
        raise RefusalError(
            Why.FOREIGN, f"this service is not called {host[:60]}: without a key it is this machine's alone"
        )
    refuse_other_origin(headers)


def refuse_other_origin(headers: Headers) -> None:
    """Raises `RefusalError` for what a page that is not ours had a browser ask."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise RefusalError(Why.FOREIGN, "pages of other origins may not speak to this service")
