"""The service as an application: who may come in, which paths there are, and what becomes of mistakes."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from embodied_rm.serve.http.asking import BROKEN, asking
from embodied_rm.serve.http.door import Door
from embodied_rm.serve.http.page import looking
from embodied_rm.serve.http.responses import refusal_response
from embodied_rm.serve.http.telling import telling
from embodied_rm.serve.refusal import RefusalError
from embodied_rm.serve.service import RewardService


def make_app(service: RewardService, key: str | None) -> ASGIApp:
    """The service as an ASGI application; `key`: what every request must show, None: nothing."""
    handlers: dict[Any, Any] = {RefusalError: refused, HTTPException: no_such, Exception: broken}
    routes = [*asking(service), *telling(service), *looking(service)]
    return Entrance(Starlette(routes=routes, exception_handlers=handlers), Door(key))


class Entrance:
    """Looks at who comes before any path does, so that none can be forgotten."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            self._door.refuse(scope["path"], request.headers)
        except RefusalError as refusal:
            await refusal_response(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def refused(request: Request, refusal: Exception) -> Response:
    """A request that gets no answer but a reason."""
    assert isinstance(refusal, RefusalError)
    return refusal_response(refusal)


async def no_such(request: Request, fault: Exception) -> Response:
    """A path or method that there is not."""
    assert isinstance(fault, HTTPException)
    return JSONResponse({"error": fault.detail, "code": "no_such_path"}, fault.status_code, fault.headers)


async def broken(request: Request, fault: Exception) -> Response:
    """A fault of ours; the server writes it down."""
    return refusal_response(BROKEN)
