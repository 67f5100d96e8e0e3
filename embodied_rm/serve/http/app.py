"""The service as an ASGI application: authentication, routes and error handling."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from embodied_rm.serve.http.auth import Authenticator
from embodied_rm.serve.http.inference_routes import INTERNAL_ERROR, inference_routes
from embodied_rm.serve.http.info_routes import info_routes
from embodied_rm.serve.http.page_routes import page_routes
from embodied_rm.serve.http.responses import error_response
from embodied_rm.serve.request_errors import RequestError
from embodied_rm.serve.service import RewardService


def make_app(service: RewardService, api_key: str | None) -> ASGIApp:
    """Build the ASGI application. `api_key`: key that every request must carry; None: no authentication."""
    handlers: dict[Any, Any] = {
        RequestError: handle_request_error,
        HTTPException: handle_http_exception,
        Exception: handle_internal_error,
    }
    routes = [*inference_routes(service), *info_routes(service), *page_routes(service)]
    return AuthMiddleware(Starlette(routes=routes, exception_handlers=handlers), Authenticator(api_key))


class AuthMiddleware:
    """Authenticates every request before routing, so that no route can omit it."""

    def __init__(self, app: ASGIApp, auth: Authenticator) -> None:
        self._app, self._auth = app, auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            self._auth.check(scope["path"], request.headers)
        except RequestError as error:
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def handle_request_error(request: Request, error: Exception) -> Response:
    """Respond to a rejected or failed request."""
    assert isinstance(error, RequestError)
    return error_response(error)


async def handle_http_exception(request: Request, error: Exception) -> Response:
    """Respond to an unknown path or method."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "code": "not_found"}, error.status_code, error.headers)


async def handle_internal_error(request: Request, error: Exception) -> Response:
    """Respond to an unexpected exception, which the server logs."""
    return error_response(INTERNAL_ERROR)
