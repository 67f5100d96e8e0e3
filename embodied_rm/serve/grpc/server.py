"""gRPC's server: the same requests and answers, in its messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from embodied_rm.serve.config import ServeConfig
from embodied_rm.serve.grpc.films import inferred
from embodied_rm.serve.grpc.messages import INFER, INFERENCE, OURS, REWARDS
from embodied_rm.serve.http.door import refuse_key, shown
from embodied_rm.serve.http.telling import EXTENSIONS, about
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.sessions import LostError

Handler = Callable[[Any, float], Awaitable[Any]]
"""(request, when an answer is of no use any more) -> answer."""
METADATA = 16 << 10
"""Bytes of the headers of a call."""


class GrpcServer:
    """A service, spoken to by gRPC. `async with` runs it."""

    def __init__(self, service: RewardService, config: ServeConfig, key: str | None) -> None:
        self._service, self._config, self._key = service, config, key
        self._health = health.aio.HealthServicer()
        self._server = aio.server(
            options=[
                ("grpc.max_receive_message_length", service.limits.body),
                ("grpc.max_send_message_length", service.limits.body),
                ("grpc.max_metadata_size", METADATA),
                ("grpc.absolute_max_metadata_size", METADATA),
                ("grpc.max_concurrent_streams", service.limits.queue),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=service.limits.connections,
        )
        sessions = {asked.capitalize(): self._session(asked) for asked in service.asked}
        handlers = [
            grpc.method_handlers_generic_handler(f"{OURS}.Rewards", sessions),
            grpc.method_handlers_generic_handler(f"{INFERENCE}.GRPCInferenceService", self._inference()),
        ]
        self._server.add_generic_rpc_handlers(tuple(handlers))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.port = 0

    async def __aenter__(self) -> GrpcServer:
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        self.port = self._server.add_insecure_port(f"{host}:{self._config.grpc_port}")
        await self._server.start()
        serving = health_pb2.HealthCheckResponse.SERVING
        await self._health.set("", serving if self._service.ready else health_pb2.HealthCheckResponse.NOT_SERVING)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._config.drain_s)

    def _session(self, asked: str) -> grpc.RpcMethodHandler:
        async def answer(request: Any, expires: float) -> Any:
            text, blobs = await self._service.asked[asked](request.header, memoryview(request.body), expires)
            return REWARDS["Answer"](header=text, body=b"".join(blobs))

        return self._method(REWARDS["Request"], asked, answer)

    def _inference(self) -> dict[str, grpc.RpcMethodHandler]:
        service = self._service

        async def live(request: Any, expires: float) -> Any:
            return INFER["ServerLiveResponse"](live=True)

        async def ready(request: Any, expires: float) -> Any:
            return INFER["ServerReadyResponse"](ready=service.ready)

        async def model_ready(request: Any, expires: float) -> Any:
            service.refuse_other(request.name)
            return INFER["ModelReadyResponse"](ready=service.ready)

        async def server(request: Any, expires: float) -> Any:
            return INFER["ServerMetadataResponse"](name="embodied-rm", version="2", extensions=EXTENSIONS)

        async def model(request: Any, expires: float) -> Any:
            service.refuse_other(request.name)
            told = about(service)
            del told["parameters"]
            return INFER["ModelMetadataResponse"](**told)

        async def infer(request: Any, expires: float) -> Any:
            service.refuse_other(request.model_name)
            return await inferred(service, request, expires)

        return {
            "ServerLive": self._method(INFER["ServerLiveRequest"], None, live),
            "ServerReady": self._method(INFER["ServerReadyRequest"], None, ready),
            "ModelReady": self._method(INFER["ModelReadyRequest"], None, model_ready),
            "ServerMetadata": self._method(INFER["ServerMetadataRequest"], None, server),
            "ModelMetadata": self._method(INFER["ModelMetadataRequest"], None, model),
            "ModelInfer": self._method(INFER["ModelInferRequest"], "infer", infer),
        }

    def _method(self, request: Any, asked: str | None, answer: Handler) -> grpc.RpcMethodHandler:
        """A method: its request is read here, so that what cannot be read is told as all other mistakes are. `asked`:
        what is counted; None: nothing is judged."""

        async def handle(content: bytes, context: aio.ServicerContext) -> bytes:
            limit, left = self._service.limits.timeout_s, context.time_remaining()
            expires = asyncio.get_running_loop().time() + (limit if left is None else min(left, limit))
            try:
                self._refuse_keyless(context)
                with self._service.counted(asked) if asked is not None else contextlib.nullcontext():
                    said: bytes = (await answer(parsed(request, content), expires)).SerializeToString()
                    return said
            except RefusalError as fault:
                refusal = fault.bare()
            await refuse(context, refusal)
            raise AssertionError("a refused call does not go on")

        return grpc.unary_unary_rpc_method_handler(handle)

    def _refuse_keyless(self, context: aio.ServicerContext) -> None:
        """Raises `RefusalError` for a call that does not show the key."""
        if self._key is None:
            return
        told = {key.lower(): str(value) for key, value in context.invocation_metadata() or ()}
        refuse_key(shown(told), self._key)


def parsed(kind: Any, content: bytes) -> Any:
    """A request. Raises `RefusalError` for what is none."""
    try:
        return kind.FromString(content)
    except (DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise RefusalError(Why.UNPARSABLE, f"not a {kind.DESCRIPTOR.name}: {fault}") from None


async def refuse(context: aio.ServicerContext, refusal: RefusalError) -> None:
    """End a call with the status of a refusal; what else there is to say is in its trailing metadata."""
    told = [("code", refusal.why.name.lower())]
    if refusal.retry_after is not None:
        told.append(("retry-after-ms", str(round(1000 * refusal.retry_after))))
    if isinstance(refusal, LostError):
        told.append(("env", json.dumps(refusal.env)))
    message = refusal.message.encode("ascii", "replace").decode()
    await context.abort(getattr(grpc.StatusCode, refusal.why.grpc), message, tuple(told))
