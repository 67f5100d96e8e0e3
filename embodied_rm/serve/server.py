"""Runs the service until it is told to end, and ends when everybody who was let in has an answer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType

import uvicorn
import uvloop

from embodied_rm.serve.config import ServeConfig
from embodied_rm.serve.grpc.server import GrpcServer
from embodied_rm.serve.http.app import make_app
from embodied_rm.serve.http.guard import guarded
from embodied_rm.serve.meter import tell
from embodied_rm.serve.served import Served
from embodied_rm.serve.service import RewardService

Started = Callable[[str, Callable[[], None]], None]
KEEP_ALIVE = 75
"""Seconds for which an idle connection is kept."""


class Server(uvicorn.Server):
    """uvicorn's, which says that it is not ready before it stops listening."""

    def __init__(self, config: uvicorn.Config, service: RewardService, started: Started) -> None:
        super().__init__(config)
        self._service, self._told = service, started

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.draining = True
        tell("draining", signal=sig, waiting=len(self._service.queue))
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """End by SIGTERM and SIGINT, and then go on: uvicorn's own would have the process die of the signal, before it
        could say what it had done. In another thread than the first there are no signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    async def startup(self, sockets: list | None = None) -> None:
        await super().startup(sockets)
        if self.servers:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._told(f"http://{f'[{host}]' if ':' in host else host}:{port}", self.end)

    def end(self) -> None:
        """End, as at SIGTERM; may be called from any thread."""
        self._service.draining = self.should_exit = True


def serve(served: Served, config: ServeConfig, key: str | None, started: Started) -> None:
    """Serve until SIGTERM or SIGINT, or until `end` is called.

    `key`: what every request must show; None: nothing. `started` is told the address when it listens, and `end`.
    """
    gc.collect()
    gc.freeze()  # what was loaded stays: looking through it for garbage took a tenth of a second now and then
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(served, config, key, started))


async def _serve(served: Served, config: ServeConfig, key: str | None, started: Started) -> None:
    service = RewardService(served, config)
    server = Server(
        uvicorn.Config(
            make_app(service, key),
            host=config.host,
            port=config.port,
            http=guarded(service.limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, round(config.drain_s)),
        ),
        service,
        started,
    )
    spoken = GrpcServer(service, config, key) if config.grpc_port is not None else contextlib.nullcontext()
    async with service, spoken:
        if isinstance(spoken, GrpcServer):
            tell("listening", grpc_port=spoken.port)
        await server.serve()
    accepted, answered = service.meter.totals()
    tell("ended", accepted=accepted, answered=answered)
