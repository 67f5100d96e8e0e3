"""Who may come in: whoever shows the key, or where there is none, whoever is no web page of somebody else's."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping

from starlette.datastructures import Headers

from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.service_config import is_loopback

PUBLIC_PATHS = ("/v2/health/live", "/v2/health/ready")
"""Paths that need no key: whether the service is there is no secret."""


class Authenticator:
    """Looks at the headers of a request, before anything of its body is read."""

    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key

    def check(self, path: str, headers: Headers) -> None:
        """Raises `RefusalError` for whoever may not come in."""
        if path in PUBLIC_PATHS:
            return
        if self._api_key is None:
            check_local_host(headers)
            return
        check_api_key(extract_api_key(headers), self._api_key)
        if uses_basic_auth(headers):
            check_same_origin(headers)


def check_api_key(api_key: str, expected: str) -> None:
    """Raises `RefusalError` for another key, in a time that says nothing of how much of it was right."""
    if not hmac.compare_digest(api_key.encode(), expected.encode()):
        raise RequestError(ErrorCode.UNAUTHENTICATED, "show the key of this service: Authorization: Bearer <key>")


def extract_api_key(headers: Mapping[str, str]) -> str:
    """The key that is shown, however; none is an empty one. `headers`: of HTTP, or of gRPC by their names in lower
    case."""
    if (api_key := headers.get("x-api-key")) is not None:
        return api_key
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() == "basic":  # as browsers ask for it: any name, the key for a password
        try:
            return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def uses_basic_auth(headers: Headers) -> bool:
    """Whether a browser may have shown the key by itself, whoever's page made it ask."""
    return headers.get("authorization", "").lower().startswith("basic ")


def check_local_host(headers: Headers) -> None:
    """A browser on this machine shows pages of strangers, which may try to speak to services on it: they come from
    another origin, or by another name. Raises `RefusalError` for those."""
    host = headers.get("host", "")
    hostname = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if host and not is_loopback(hostname.strip("[]")):
        raise RequestError(
            ErrorCode.FORBIDDEN, f"this service is not called {host[:60]}: without a key it is this machine's alone"
        )
    check_same_origin(headers)


def check_same_origin(headers: Headers) -> None:
    """Raises `RefusalError` for what a page that is not ours had a browser ask."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise RequestError(ErrorCode.FORBIDDEN, "pages of other origins may not speak to this service")
