"""Authentication: require the API key if one is set; otherwise reject cross-origin browser requests."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping

from starlette.datastructures import Headers

from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.service_config import is_loopback

PUBLIC_PATHS = ("/v2/health/live", "/v2/health/ready")
"""Paths that need no key."""


class Authenticator:
    """Checks the headers of a request before its body is read."""

    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key

    def check(self, path: str, headers: Headers) -> None:
        """Raise `RequestError` if the request is not allowed."""
        if path in PUBLIC_PATHS:
            return
        if self._api_key is None:
            check_local_host(headers)
            return
        check_api_key(extract_api_key(headers), self._api_key)
        if uses_basic_auth(headers):
            check_same_origin(headers)


def check_api_key(api_key: str, expected: str) -> None:
    """Raise `RequestError` for a wrong key. The comparison takes constant time."""
    if not hmac.compare_digest(api_key.encode(), expected.encode()):
        raise RequestError(ErrorCode.UNAUTHENTICATED, "send the API key of this service: Authorization: Bearer <key>")


def extract_api_key(headers: Mapping[str, str]) -> str:
    """Return the key of a request, or "" without one. Header names are in lower case (HTTP or gRPC metadata)."""
    if (api_key := headers.get("x-api-key")) is not None:
        return api_key
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() == "basic":  # a browser's prompt: any user name, the key as password
        try:
            return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def uses_basic_auth(headers: Headers) -> bool:
    """Return whether the browser may have added the key by itself, for a page of any origin."""
    return headers.get("authorization", "").lower().startswith("basic ")


def check_local_host(headers: Headers) -> None:
    """Raise `RequestError` for a request by another host name or from another origin.

    Any page in a browser on this machine can send requests to local services (DNS rebinding, cross-site requests).
    """
    host = headers.get("host", "")
    hostname = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if host and not is_loopback(hostname.strip("[]")):
        raise RequestError(
            ErrorCode.FORBIDDEN, f"unknown host {host[:60]}: without an API key, only this machine may use the service"
        )
    check_same_origin(headers)


def check_same_origin(headers: Headers) -> None:
    """Raise `RequestError` for a request from a page of another origin."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise RequestError(ErrorCode.FORBIDDEN, "cross-origin requests are not allowed")
