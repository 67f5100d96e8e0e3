"""The service as an application: who may come in, which paths there are, and what becomes of mistakes."""

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
    """The service as an ASGI application; `key`: what every request must show, None: nothing."""
    handlers: dict[Any, Any] = {
        RequestError: handle_request_error,
        HTTPException: handle_http_exception,
        Exception: handle_internal_error,
    }
    routes = [*inference_routes(service), *info_routes(service), *page_routes(service)]
    return AuthMiddleware(Starlette(routes=routes, exception_handlers=handlers), Authenticator(api_key))


class AuthMiddleware:
    """Looks at who comes before any path does, so that none can be forgotten."""

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
    """A request that gets no answer but a reason."""
    assert isinstance(error, RequestError)
    return error_response(error)


async def handle_http_exception(request: Request, error: Exception) -> Response:
    """A path or method that there is not."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "code": "not_found"}, error.status_code, error.headers)


async def handle_internal_error(request: Request, error: Exception) -> Response:
    """A fault of ours; the server writes it down."""
    return error_response(INTERNAL_ERROR)
