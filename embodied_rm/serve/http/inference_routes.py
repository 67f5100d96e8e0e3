"""Routes that run inference."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embodied_rm.client.wire import BINARY_CONTENT_TYPE
from embodied_rm.serve.http.request_body import (
    JSON_CONTENT_TYPE,
    BodyBudget,
    check_headers,
    read_body,
    remaining_seconds,
    split_body,
)
from embodied_rm.serve.http.responses import error_response, message_response
from embodied_rm.serve.open_inference import infer
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.robometer_api import evaluate_form
from embodied_rm.serve.service import RewardService

MULTIPART_FORM = "multipart/form-data"
RequestHandler = Callable[[Request, memoryview, float], Awaitable[Response]]
"""(request, body, deadline) -> response."""
INTERNAL_ERROR = RequestError(ErrorCode.INTERNAL_ERROR, "the service failed: see its log")


def inference_routes(service: RewardService) -> list[Route]:
    """Return the routes that run inference."""
    budget = BodyBudget(service.limits)
    service.metrics.add_gauge(
        "buffered_request_bytes", "Bytes of buffered request bodies", lambda: budget.reserved_bytes
    )

    def make_route(path: str, endpoint: str, handler: RequestHandler, *content_types: str) -> Route:
        async def handle(request: Request) -> Response:
            return await handle_measured(service, budget, request, endpoint, content_types, handler)

        return Route(path, handle, methods=["POST"])

    async def infer_videos(request: Request, body: memoryview, deadline: float) -> Response:
        service.check_model_name(request.path_params["name"])
        return message_response(await infer(service, *split_body(body, request.headers, service.limits), deadline))

    async def evaluate_videos(request: Request, body: memoryview, deadline: float) -> Response:
        view = request.query_params.get("view", (service.metadata.views or ("front",))[0])
        content_type = request.headers.get("content-type", "")
        return JSONResponse(await evaluate_form(service, content_type, bytes(body), view, deadline))

    return [
        *(
            make_route(
                f"/v1/{endpoint}", endpoint, session_handler(service, endpoint), BINARY_CONTENT_TYPE, JSON_CONTENT_TYPE
            )
            for endpoint in service.handlers
        ),
        make_route("/v2/models/{name}/infer", "infer", infer_videos, BINARY_CONTENT_TYPE, JSON_CONTENT_TYPE),
        make_route("/evaluate_batch_npy", "evaluate_batch_npy", evaluate_videos, MULTIPART_FORM),
    ]


def session_handler(service: RewardService, endpoint: str) -> RequestHandler:
    """Return the handler of a session endpoint."""

    async def answer(request: Request, body: memoryview, deadline: float) -> Response:
        header_json, payload = split_body(body, request.headers, service.limits)
        return message_response(await service.handlers[endpoint](header_json, payload, deadline))

    return answer


async def handle_measured(
    service: RewardService,
    budget: BodyBudget,
    request: Request,
    endpoint: str,
    content_types: tuple[str, ...],
    handler: RequestHandler,
) -> Response:
    """Read a request, run its handler, and record metrics."""
    start_s = asyncio.get_running_loop().time()
    try:
        with service.track_request(endpoint), budget.reserve() as reservation:
            declared_bytes = check_headers(request.headers, content_types, service.limits)
            deadline = start_s + remaining_seconds(request.headers, service.limits)
            body = await read_body(request, reservation, service.limits, declared_bytes)
            return await handler(request, body, deadline)
    except RequestError as error:
        return error_response(error.without_traceback())
