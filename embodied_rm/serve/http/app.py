"""The paths of the service, and what becomes of a request on its way in and out."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from embodied_rm.serve.client.wire import BINARY, LENGTH, Message
from embodied_rm.serve.http.body import JSON, Room, parts_of, read_body, refuse_headers, seconds_left
from embodied_rm.serve.http.door import Door
from embodied_rm.serve.meter import tell
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.sessions import LostError

BROKEN = RefusalError(Why.BROKEN, "the service failed; its log says why")


def make_app(service: RewardService, key: str | None) -> ASGIApp:
    """The service as an ASGI application; `key`: what every request must show, None: nothing."""
    room = Room(service.limits)
    service.meter.watch("queue_bytes", "Bytes of requests that are held", lambda: room.held)

    def session(asked: str) -> Route:
        async def handle(request: Request) -> Response:
            return await measured(service, room, request, asked)

        return Route(f"/v1/{asked}", handle, methods=["POST"])

    async def live(request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(request: Request) -> Response:
        return JSONResponse({"ready": service.ready}, 200 if service.ready else Why.NOT_READY.status)

    async def server(request: Request) -> Response:
        extensions = ["binary_tensor_data", "embodied_rm_sessions"]
        return JSONResponse({"name": "embodied-rm", "version": "2", "extensions": extensions})

    async def model(request: Request) -> Response:
        refuse_other_model(service, request)
        return JSONResponse(about(service))

    async def served(request: Request) -> Response:
        return JSONResponse(about(service))

    async def model_ready(request: Request) -> Response:
        refuse_other_model(service, request)
        return await ready(request)

    async def metrics(request: Request) -> Response:
        return Response(service.meter.text(), media_type="text/plain; version=0.0.4")

    routes = [
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
        Route("/v2", server),
        Route("/v2/models/{name}", model),
        Route("/v2/models/{name}/ready", model_ready),
        Route("/v1/about", served),
        Route("/metrics", metrics),
        *(session(asked) for asked in service.asked),
    ]
    handlers: dict[Any, Any] = {RefusalError: refused, HTTPException: not_found, Exception: broken}
    return Entrance(Starlette(routes=routes, exception_handlers=handlers), Door(key))


class Entrance:
    """Looks at who comes before any path does, so that none can be forgotten."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            self._door.refuse(request.url.path, request.headers)
        except RefusalError as refusal:
            await refusal_response(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def measured(service: RewardService, room: Room, request: Request, asked: str) -> Response:
    """A request about sessions, counted on its way in and out."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    service.meter.accept(asked)
    refusal: RefusalError | None = None
    try:
        return message_response(await answered(service, room, request, asked, started))
    except RefusalError as fault:
        refusal = fault
    except Exception:
        refusal = BROKEN
        raise
    finally:
        service.meter.answer(asked, loop.time() - started, refusal)
    return refusal_response(refusal)


async def answered(service: RewardService, room: Room, request: Request, asked: str, started: float) -> Message:
    """Read a request, and have it answered."""
    service.refuse()
    limits = service.limits
    declared = refuse_headers(request.headers, (BINARY, JSON), limits)
    expires = started + seconds_left(request.headers, limits)
    with room.kept() as share:
        body = await read_body(request, share, limits, declared)
        text, blob = parts_of(body, request.headers, limits)
        return await service.asked[asked](text, blob, expires)


def about(service: RewardService) -> dict[str, Any]:
    """The model, as the Open Inference Protocol describes one, and what is peculiar to reward models."""
    told = service.about
    return {
        "name": told.name,
        "versions": [told.version],
        "platform": "embodied_rm",
        "parameters": {
            "views": None if told.views is None else list(told.views),
            "image_size": None if told.image_size is None else list(told.image_size),
            "tells_success": told.tells_success,
            "storable": told.storable,
        },
    }


def refuse_other_model(service: RewardService, request: Request) -> None:
    """Raises `RefusalError` for a model that is not served here."""
    name = request.path_params["name"]
    if name != service.about.name:
        raise RefusalError(Why.NO_SUCH_MODEL, f"no model {name[:60]!r} here, there is {service.about.name!r}")


def message_response(message: Message) -> Response:
    """An answer."""
    text, blobs = message
    return Response(b"".join([text, *blobs]), media_type=BINARY, headers={LENGTH: str(len(text))})


def refusal_response(refusal: RefusalError) -> Response:
    """A refusal: its status, and why in words."""
    told: dict[str, Any] = {"error": refusal.message, "code": refusal.why.name.lower()}
    headers = {}
    if isinstance(refusal, LostError):
        told["env"] = list(refusal.env)
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(refusal.retry_after))
    if refusal.why is Why.NO_KEY:
        headers["WWW-Authenticate"] = 'Basic realm="embodied-rm", charset="UTF-8"'
    if refusal.why in (Why.TOO_LARGE, Why.SLOW_BODY):
        headers["Connection"] = "close"  # what else would come is not read
    return JSONResponse(told, refusal.why.status, headers)


async def refused(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, RefusalError)
    return refusal_response(refusal)


async def not_found(request: Request, fault: Exception) -> Response:
    """A path or method that there is not."""
    assert isinstance(fault, HTTPException)
    return JSONResponse({"error": fault.detail, "code": "no_such_path"}, fault.status_code, fault.headers)


async def broken(request: Request, fault: Exception) -> Response:
    """A fault of ours."""
    tell("broken", path=request.url.path, fault=repr(fault))
    return refusal_response(BROKEN)
