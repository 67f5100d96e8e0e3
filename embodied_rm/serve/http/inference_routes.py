"""Routes that run inference, and the responses of the service."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embodied_rm.client.wire import BINARY_CONTENT_TYPE, HEADER_LENGTH_HEADER, Message
from embodied_rm.serve.http import request_body
from embodied_rm.serve.open_inference import infer
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.robometer_api import evaluate_form
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.sessions import SessionNotFoundError

JSON_CONTENT_TYPE = "application/json"
RequestHandler = Callable[[Request, memoryview, float], Awaitable[Response]]  # (request, body, deadline) -> response
INTERNAL_ERROR = RequestError(ErrorCode.INTERNAL_ERROR, "the service failed: see its log")


def inference_routes(service: RewardService) -> list[Route]:
    """Return the routes that run inference."""
    limits = service.limits

    def make_route(path: str, endpoint: str, handler: RequestHandler, *content_types: str) -> Route:
        """Return a route that reads a request, runs its handler, and records metrics."""

        async def handle(request: Request) -> Response:
            start_s = asyncio.get_running_loop().time()
            try:
                with service.track_request(endpoint), service.budget.reserve() as grow_to:
                    declared_bytes = request_body.check_headers(request.headers, content_types, limits)
                    deadline = start_s + request_body.remaining_seconds(request.headers, limits)
                    body = await request_body.read_body(request, grow_to, limits, declared_bytes)
                    return await handler(request, body, deadline)
            except RequestError as error:
                return error_response(error.without_traceback())

        return Route(path, handle, methods=["POST"])

    def session_route(endpoint: str) -> Route:
        async def answer(request: Request, body: memoryview, deadline: float) -> Response:
            header_json, payload = request_body.split_body(body, request.headers, limits)
            return message_response(await service.handlers[endpoint](header_json, payload, deadline))

        return make_route(f"/v1/{endpoint}", endpoint, answer, BINARY_CONTENT_TYPE, JSON_CONTENT_TYPE)

    async def infer_videos(request: Request, body: memoryview, deadline: float) -> Response:
        service.check_model_name(request.path_params["name"])
        header_json, payload = request_body.split_body(body, request.headers, limits)
        return message_response(await infer(service, header_json, payload, deadline))

    async def evaluate_videos(request: Request, body: memoryview, deadline: float) -> Response:
        view = request.query_params.get("view", (service.metadata.views or ("front",))[0])
        content_type = request.headers.get("content-type", "")
        return JSONResponse(await evaluate_form(service, content_type, bytes(body), view, deadline))

    return [
        *map(session_route, service.handlers),
        make_route("/v2/models/{name}/infer", "infer", infer_videos, BINARY_CONTENT_TYPE, JSON_CONTENT_TYPE),
        make_route("/evaluate_batch_npy", "evaluate_batch_npy", evaluate_videos, "multipart/form-data"),
    ]


def message_response(message: Message) -> Response:
    """Build the response from a message. Without binary data it is plain JSON."""
    header_json, blobs = message
    media_type = BINARY_CONTENT_TYPE if any(map(len, blobs)) else JSON_CONTENT_TYPE
    headers = {HEADER_LENGTH_HEADER: str(len(header_json))}
    return Response(b"".join([header_json, *blobs]), media_type=media_type, headers=headers)


def error_response(error: RequestError) -> Response:
    """Build the response for an error."""
    body: dict[str, Any] = {"error": error.message, "code": error.code.name.lower()}
    headers = {}
    if isinstance(error, SessionNotFoundError):
        body["env_ids"] = list(error.env_ids)
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    if error.code is ErrorCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = 'Basic realm="embodied-rm", charset="UTF-8"'
    if error.code in (ErrorCode.PAYLOAD_TOO_LARGE, ErrorCode.REQUEST_TIMEOUT):
        headers["Connection"] = "close"  # the rest of the request is not read
    return JSONResponse(body, error.code.http_status, headers)
