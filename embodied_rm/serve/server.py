"""Runs the HTTP and gRPC servers until shutdown, and finishes accepted requests first."""

import asyncio
import contextlib
import gc
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType

import uvicorn
import uvloop

from embodied_rm.serve.descriptors import LISTEN_BACKLOG, raise_descriptor_limit
from embodied_rm.serve.grpc.grpc_server import GrpcServer
from embodied_rm.serve.http.app import make_app
from embodied_rm.serve.http.connection_limits import limited_protocol
from embodied_rm.serve.model_handle import ModelHandle
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.service_config import ServeConfig
from embodied_rm.serve.service_metrics import log_event

OnStartup = Callable[[str, Callable[[], None]], None]
KEEP_ALIVE_TIMEOUT_S = 75  # seconds that an idle connection stays open


class HttpServer(uvicorn.Server):
    """uvicorn's server, which reports "not ready" before it stops listening."""

    def __init__(self, config: uvicorn.Config, service: RewardService, on_startup: OnStartup) -> None:
        super().__init__(config)
        self._service, self._on_startup = service, on_startup

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.draining = True
        log_event("draining", signal=sig, num_queued=len(self._service.queue))
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Shut down on SIGTERM and SIGINT without ending the process by the signal, as uvicorn does: the log of the
        shutdown comes after it. Threads other than the main one receive no signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous_handlers = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for sig, handler in previous_handlers.items():
                signal.signal(sig, handler)

    async def startup(self, sockets: list | None = None) -> None:
        await super().startup(sockets)
        if self.servers:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_startup(f"http://{f'[{host}]' if ':' in host else host}:{port}", self.request_shutdown)

    def request_shutdown(self) -> None:
        """Shut down as on SIGTERM. May be called from any thread."""
        self._service.draining = self.should_exit = True


def serve(model_handle: ModelHandle, config: ServeConfig, api_key: str | None, on_startup: OnStartup) -> None:
    """Serve until SIGTERM or SIGINT, or until shutdown is requested.

    `api_key`: key that every request must carry; None: no authentication. `on_startup`: called with the URL and with a
    function that requests shutdown, once the server listens. Raises `UserError` for more connections than files.
    """
    raise_descriptor_limit(config.limits.max_connections, 1 if config.grpc_port is None else 2)
    gc.collect()
    gc.freeze()  # garbage collection of loaded modules took 0.1 s now and then
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(model_handle, config, api_key, on_startup))


async def _serve(model_handle: ModelHandle, config: ServeConfig, api_key: str | None, on_startup: OnStartup) -> None:
    service = RewardService(model_handle, config)
    uvicorn_config = uvicorn.Config(
        make_app(service, api_key),
        host=config.host,
        port=config.port,
        backlog=LISTEN_BACKLOG,
        http=limited_protocol(service.limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_TIMEOUT_S,
        timeout_graceful_shutdown=max(1, round(config.drain_timeout_s)),
    )
    http_server = HttpServer(uvicorn_config, service, on_startup)
    grpc_server = GrpcServer(service, config, api_key) if config.grpc_port is not None else contextlib.nullcontext()
    async with service, grpc_server:
        if isinstance(grpc_server, GrpcServer):
            log_event("listening", grpc_port=grpc_server.port)
        await http_server.serve()
    num_accepted, num_answered = service.metrics.request_totals()
    log_event("shutdown", num_accepted=num_accepted, num_answered=num_answered)
