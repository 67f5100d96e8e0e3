"""The service as an ASGI application: authentication, routes and error handling.

Requests carry the API key if one is set. Otherwise cross-origin requests of browsers are rejected.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from embodied_rm.serve.http.inference_routes import INTERNAL_ERROR, error_response, inference_routes
from embodied_rm.serve.http.info_routes import info_routes, page_routes
from embodied_rm.serve.peer import PEER, http_peer
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.service_config import is_loopback

PUBLIC_PATHS = ("/v2/health/live", "/v2/health/ready")  # paths that need no key


def make_app(service: RewardService, api_key: str | None) -> ASGIApp:
    """Build the ASGI application. `api_key`: key that every request must carry; None: no authentication."""
    handlers: dict[Any, Any] = {
        RequestError: handle_request_error,
        HTTPException: handle_http_exception,
        Exception: handle_internal_error,
    }
    routes = [*inference_routes(service), *info_routes(service), *page_routes(service)]
    return AuthMiddleware(Starlette(routes=routes, exception_handlers=handlers), api_key)


class AuthMiddleware:
    """Authenticates every request before routing and before its body is read, so that no route can omit it."""

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self._app, self._api_key = app, api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        PEER.set(http_peer(scope.get("client")))
        try:
            if scope["path"] not in PUBLIC_PATHS:
                check_access(Request(scope).headers, self._api_key)
        except RequestError as error:
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def handle_request_error(request: Request, error: RequestError) -> Response:
    """Respond to a rejected or failed request."""
    return error_response(error)


async def handle_http_exception(request: Request, error: HTTPException) -> Response:
    """Respond to an unknown path or method."""
    return JSONResponse({"error": error.detail, "code": "not_found"}, error.status_code, error.headers)


async def handle_internal_error(request: Request, error: Exception) -> Response:
    """Respond to an unexpected exception, which the server logs."""
    return error_response(INTERNAL_ERROR)


def check_access(headers: Headers, expected_key: str | None) -> None:
    """Raise `RequestError` if a request with these headers is not allowed."""
    if expected_key is None:
        check_local_host(headers)
        return
    check_api_key(extract_api_key(headers), expected_key)
    # The browser may have added the key by itself, for a page of any origin.
    if headers.get("authorization", "").lower().startswith("basic "):
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
    if scheme.lower() == "basic":  # a browser's prompt: any user name, the key as password
        try:
            return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return credentials.strip() if scheme.lower() == "bearer" else ""


def check_local_host(headers: Headers) -> None:
    """Raise `RequestError` for a request by another host name or from another origin.

    Any page in a browser on this machine can send requests to local services (DNS rebinding, cross-site requests).
    """
    host = headers.get("host", "")
    hostname = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if host and not is_loopback(hostname.strip("[]")):
        message = f"unknown host {host[:60]}: without an API key, only this machine may use the service"
        raise RequestError(ErrorCode.FORBIDDEN, message)
    check_same_origin(headers)


def check_same_origin(headers: Headers) -> None:
    """Raise `RequestError` for a request from a page of another origin."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise RequestError(ErrorCode.FORBIDDEN, "cross-origin requests are not allowed")
