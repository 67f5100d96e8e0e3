"""Requests that have something judged: let in, read, answered and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embodied_rm.serve.client.wire import BINARY
from embodied_rm.serve.http.body import JSON, Room, parts_of, read_body, refuse_headers, seconds_left
from embodied_rm.serve.http.responses import message_response, refusal_response
from embodied_rm.serve.npy_batch import evaluate
from embodied_rm.serve.open_inference import infer
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.service import RewardService

FORM = "multipart/form-data"
Answer = Callable[[Request, memoryview, float], Awaitable[Response]]
"""(request, its body, when an answer is of no use any more) -> answer."""
BROKEN = RefusalError(Why.BROKEN, "the service failed; its log says why")


def asking(service: RewardService) -> list[Route]:
    """The paths at which something is judged."""
    room = Room(service.limits)
    service.meter.watch("queue_bytes", "Bytes of requests that are held", lambda: room.held)

    def route(path: str, asked: str, answer: Answer, *kinds: str) -> Route:
        async def handle(request: Request) -> Response:
            return await measured(service, room, request, asked, kinds, answer)

        return Route(path, handle, methods=["POST"])

    async def infer_films(request: Request, body: memoryview, expires: float) -> Response:
        service.refuse_other(request.path_params["name"])
        return message_response(await infer(service, *parts_of(body, request.headers, service.limits), expires))

    async def evaluate_films(request: Request, body: memoryview, expires: float) -> Response:
        view = request.query_params.get("view", (service.about.views or ("front",))[0])
        kind = request.headers.get("content-type", "")
        return JSONResponse(await evaluate(service, kind, bytes(body), view, expires))

    return [
        *(route(f"/v1/{asked}", asked, session(service, asked), BINARY, JSON) for asked in service.asked),
        route("/v2/models/{name}/infer", "infer", infer_films, BINARY, JSON),
        route("/evaluate_batch_npy", "evaluate_batch_npy", evaluate_films, FORM),
    ]


def session(service: RewardService, asked: str) -> Answer:
    """How a request about episodes is answered."""

    async def answer(request: Request, body: memoryview, expires: float) -> Response:
        text, blob = parts_of(body, request.headers, service.limits)
        return message_response(await service.asked[asked](text, blob, expires))

    return answer


async def measured(
    service: RewardService, room: Room, request: Request, asked: str, kinds: tuple[str, ...], answer: Answer
) -> Response:
    """A request, counted on its way in and out."""
    started = asyncio.get_running_loop().time()
    try:
        with service.counted(asked), room.kept() as share:
            declared = refuse_headers(request.headers, kinds, service.limits)
            expires = started + seconds_left(request.headers, service.limits)
            body = await read_body(request, share, service.limits, declared)
            return await answer(request, body, expires)
    except RefusalError as refusal:
        return refusal_response(refusal.bare())
