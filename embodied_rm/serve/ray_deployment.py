"""The service as Ray Serve replicas: scaled with load, replaced when they die, and rolled over to new models.

The state of an episode lives in one replica. Requests carry the client id (`X-Session-Id`), and all requests of a
client go to one replica. After a replica dies, or after scaling, another replica gets the next request and does not
know the episode: the client then restores it there.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from starlette.types import ASGIApp, Receive, Scope, Send

from embodied_rm.errors import UserError
from embodied_rm.ray_cluster import connect_ray, import_ray_module
from embodied_rm.serve.http.app import make_app
from embodied_rm.serve.model_handle import SELF_TEST_FAILED_MESSAGE, ModelLoader, load_in_thread
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.service_config import ServeConfig

REQUIRED_BY = "ray.min_replicas"
APP_NAME = "embodied_rm"  # name of the application and of its only deployment
REQUEST_ROUTER_CLASS = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
HEALTH_CHECK_PERIOD_S = 2.0  # seconds between two health checks
UPSCALE_DELAY_S = 5.0  # seconds of load before a replica is added; rollouts begin all at once, so Ray's 30 are long


class RewardReplica:
    """One service in a Ray process."""

    def __init__(self, load_model: ModelLoader, config: ServeConfig, api_key: str | None, working_dir: Path) -> None:
        """Load the model in `working_dir`, the folder of the command: its paths may be relative."""
        if not working_dir.is_dir():
            raise UserError(f"{working_dir} does not exist on {os.uname().nodename}: all machines need it")
        os.chdir(working_dir)
        torch.set_num_threads(max(1, int(config.ray.num_cpus)))
        self._service, self._api_key = RewardService(load_in_thread(load_model), config), api_key
        if not self._service.metadata.passed_self_test:
            raise UserError(SELF_TEST_FAILED_MESSAGE)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the ASGI application. Called by Ray Serve, once."""
        return LifespanMiddleware(make_app(self._service, self._api_key), self._service)

    def check_health(self) -> None:
        """Raise if the replica must be replaced. Called by Ray Serve periodically."""
        if not self._service.ready:
            raise RuntimeError("the service accepts no requests")


class LifespanMiddleware:
    """ASGI middleware that runs the service from server startup to shutdown, in the server's event loop."""

    def __init__(self, app: ASGIApp, service: RewardService) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        assert (await receive())["type"] == "lifespan.startup"
        async with self._service:
            await send({"type": "lifespan.startup.complete"})
            assert (await receive())["type"] == "lifespan.shutdown"
        await send({"type": "lifespan.shutdown.complete"})


@contextmanager
def deploy(load_model: ModelLoader, config: ServeConfig, api_key: str | None) -> Iterator[str]:
    """Deploy the service on Ray and yield its URL.

    A local Ray ends with the block; on a cluster the service stays, and an existing one rolls over to this model.
    Raises `UserError` without Ray Serve.
    """
    ray_config = config.ray
    with connect_ray(REQUIRED_BY, ray_config.address, int(ray_config.num_cpus * ray_config.resolved_max_replicas) + 1):
        serve = import_ray_module(REQUIRED_BY, "ray.serve")
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        serve.start(proxy_location="HeadOnly", http_options={"host": config.host, "port": config.port})
        serve.run(build_application(serve, load_model, config, api_key), name=APP_NAME, route_prefix="/")
        yield f"http://{config.host}:{config.port}"
        if ray_config.address is None:
            serve.shutdown()


def build_application(serve: Any, load_model: ModelLoader, config: ServeConfig, api_key: str | None) -> Any:
    """Build the Ray Serve application."""
    ray_config = config.ray
    options = {"request_router_class": REQUEST_ROUTER_CLASS, "request_router_kwargs": {"num_fallback_replicas": 0}}
    router = import_ray_module(REQUIRED_BY, "ray.serve.config").RequestRouterConfig(**options)
    autoscaling_config = {
        "min_replicas": ray_config.min_replicas,
        "max_replicas": ray_config.resolved_max_replicas,
        "target_ongoing_requests": ray_config.target_ongoing_requests,
        "upscale_delay_s": UPSCALE_DELAY_S,
    }
    deployment = serve.deployment(
        serve.ingress()(RewardReplica),
        name=APP_NAME,
        autoscaling_config=autoscaling_config,
        max_ongoing_requests=2 * config.limits.max_queue,  # the replica itself rejects requests, with `Retry-After`
        request_router_config=router,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        graceful_shutdown_timeout_s=config.drain_timeout_s,
        logging_config={"log_level": "ERROR"},
        ray_actor_options={"num_cpus": ray_config.num_cpus, "num_gpus": ray_config.num_gpus},
    )
    return deployment.bind(load_model, config, api_key, Path.cwd())
