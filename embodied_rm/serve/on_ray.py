"""The service as replicas that Ray Serve looks after: it starts more when they are asked for much, replaces what dies,
and rolls from one model to the next.

Every episode lives in the memory of one replica. A run says who it is (`X-Session-Id`), and all that it asks goes to
one replica while there is one; where that dies, or another number of them shares the runs anew, the next one that is
asked does not know the episode, and the client sends back what it was told to remember.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from starlette.types import ASGIApp, Receive, Scope, Send

from embodied_rm.cluster import cluster, imported
from embodied_rm.errors import UserError
from embodied_rm.models.plan_memory import PlanMemory
from embodied_rm.models.plans import Plans
from embodied_rm.serve.config import ServeConfig
from embodied_rm.serve.http.app import make_app
from embodied_rm.serve.served import UNSOUND, About, serve_in_thread
from embodied_rm.serve.service import RewardService

WANTED = "ray.replicas"
NAME = "embodied_rm"
"""Of the application and of its one deployment."""
ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
LOOK_S = 2.0
"""Seconds between two looks whether a replica is well."""
Opened = Callable[[], tuple[Plans, About, PlanMemory]]


class Replica:
    """A service of its own in a process of Ray's."""

    def __init__(self, opened: Opened, config: ServeConfig, key: str | None, folder: Path) -> None:
        """`folder`: where the command was given, since paths may be relative to it."""
        if not folder.is_dir():
            raise UserError(f"{folder} is not there on {os.uname().nodename}: all machines need the same folders")
        os.chdir(folder)
        torch.set_num_threads(max(1, int(config.ray.cpus)))
        self._service, self._key = RewardService(serve_in_thread(opened), config), key
        if not self._service.about.sound:
            raise UserError(UNSOUND)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Asked by Ray Serve, once."""
        return Living(make_app(self._service, self._key), self._service)

    def check_health(self) -> None:
        """Asked by Ray Serve now and then: whoever raises is replaced."""
        if not self._service.ready:
            raise RuntimeError("the service takes no requests")


class Living:
    """An application whose service runs from the start of its server to its end, in the server's loop."""

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
def deployed(opened: Opened, config: ServeConfig, key: str | None) -> Iterator[str]:
    """The service on Ray, until the block ends, or for good on a cluster at an address; where it is.

    One that is there already rolls over to this model, replica after replica. Raises `UserError` without Ray Serve.
    """
    wanted = config.ray
    with cluster(WANTED, wanted.address, int(wanted.cpus * wanted.ceiling) + 1):
        serve = imported(WANTED, "ray.serve")
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        serve.start(proxy_location="HeadOnly", http_options={"host": config.host, "port": config.port})
        serve.run(application(serve, opened, config, key), name=NAME, route_prefix="/")
        yield f"http://{config.host}:{config.port}"
        if wanted.address is None:
            serve.shutdown()


def application(serve: Any, opened: Opened, config: ServeConfig, key: str | None) -> Any:
    """What Ray Serve is to run. More requests are let in than may wait: it is the replica that refuses, and says when
    to come again."""
    wanted = config.ray
    router = imported(WANTED, "ray.serve.config").RequestRouterConfig(
        request_router_class=ROUTER, request_router_kwargs={"num_fallback_replicas": 0}
    )
    scaling = {
        "min_replicas": wanted.replicas,
        "max_replicas": wanted.ceiling,
        "target_ongoing_requests": wanted.ongoing,
    }
    deployment = serve.deployment(
        serve.ingress()(Replica),
        name=NAME,
        autoscaling_config=scaling,
        max_ongoing_requests=2 * config.limits.queue,
        request_router_config=router,
        health_check_period_s=LOOK_S,
        graceful_shutdown_timeout_s=config.drain_s,
        logging_config={"log_level": "ERROR"},
        ray_actor_options={"num_cpus": wanted.cpus, "num_gpus": wanted.gpus},
    )
    return deployment.bind(opened, config, key, Path.cwd())
