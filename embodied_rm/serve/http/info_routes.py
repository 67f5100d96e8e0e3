"""Routes for health, metadata and metrics."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embodied_rm.serve.open_inference import describe_tensors
from embodied_rm.serve.request_errors import ErrorCode
from embodied_rm.serve.service import RewardService

EXTENSIONS = ["binary_tensor_data", "embodied_rm_sessions"]


def info_routes(service: RewardService) -> list[Route]:
    """Return the routes for health, metadata and metrics."""

    async def live(request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(request: Request) -> Response:
        return JSONResponse({"ready": service.ready}, 200 if service.ready else ErrorCode.NOT_READY.http_status)

    async def server(request: Request) -> Response:
        return JSONResponse({"name": "embodied-rm", "version": "2", "extensions": EXTENSIONS})

    async def metadata(request: Request) -> Response:
        return JSONResponse(describe_model(service))

    async def model(request: Request) -> Response:
        service.check_model_name(request.path_params["name"])
        return JSONResponse(describe_model(service))

    async def model_ready(request: Request) -> Response:
        service.check_model_name(request.path_params["name"])
        return await ready(request)

    async def health(request: Request) -> Response:  # path of Robometer's clients
        return JSONResponse({"status": "healthy"}) if service.ready else await ready(request)

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.to_prometheus_text(), media_type="text/plain; version=0.0.4")

    return [
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
        Route("/v2", server),
        Route("/v2/models/{name}", model),
        Route("/v2/models/{name}/ready", model_ready),
        Route("/v1/metadata", metadata),
        Route("/health", health),
        Route("/metrics", metrics),
    ]


def describe_model(service: RewardService) -> dict[str, Any]:
    """Return the model's metadata by the Open Inference Protocol, with the fields of reward models as parameters."""
    metadata = service.metadata
    return {
        "name": metadata.name,
        "versions": [metadata.version],
        "platform": "embodied_rm",
        **describe_tensors(),
        "parameters": {
            "views": None if metadata.views is None else list(metadata.views),
            "image_size": None if metadata.image_size is None else list(metadata.image_size),
            "predicts_success": metadata.predicts_success,
            "supports_restore": metadata.supports_restore,
        },
    }
