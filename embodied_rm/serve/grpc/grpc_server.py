"""gRPC server for the session API and the Open Inference Protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from grpc_health.v1 import health_pb2

from embodied_rm.serve.grpc.inference import infer
from embodied_rm.serve.grpc.messages import INFERENCE_CLASSES, INFERENCE_PACKAGE, REWARD_PACKAGE, SESSION_CLASSES
from embodied_rm.serve.http.app import check_api_key, extract_api_key
from embodied_rm.serve.http.info_routes import SERVER_METADATA, describe_model
from embodied_rm.serve.memory_budget import GrowTo
from embodied_rm.serve.peer import PEER, grpc_peer
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.service_config import ServeConfig
from embodied_rm.serve.sessions import SessionNotFoundError

RpcHandler = Callable[[Any, float], Awaitable[Any]]  # (request, deadline) -> response
MAX_METADATA_BYTES = 16 << 10  # bytes of a call's metadata
INFO_METHODS: Mapping[str, Callable[[RewardService], dict[str, Any]]] = {
    "ServerLive": lambda service: {"live": True},
    "ServerReady": lambda service: {"ready": service.ready},
    "ModelReady": lambda service: {"ready": service.ready},
    "ServerMetadata": lambda service: SERVER_METADATA,
    "ModelMetadata": lambda service: {k: v for k, v in describe_model(service).items() if k != "parameters"},
}
"""Method without inference -> the fields of its response."""


class GrpcServer:
    """gRPC server of a service. `async with` runs it."""

    def __init__(self, service: RewardService, config: ServeConfig, api_key: str | None) -> None:
        self._service, self._config, self._api_key = service, config, api_key
        limits = service.limits
        self._readers = asyncio.Semaphore(max(1, limits.max_queue_bytes // limits.max_body_bytes))
        self._server = aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.max_body_bytes),
                ("grpc.max_send_message_length", limits.max_body_bytes),
                ("grpc.max_allowed_incoming_connections", limits.max_connections),
                ("grpc.server_handshake_timeout_ms", int(1000 * limits.body_timeout_s)),
                ("grpc.max_metadata_size", MAX_METADATA_BYTES),
                ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
                ("grpc.max_concurrent_streams", limits.max_queue),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=limits.max_connections,
        )
        sessions = {endpoint.capitalize(): self._session_method(endpoint) for endpoint in service.handlers}
        inference = {name: self._info_method(name) for name in INFO_METHODS} | {"ModelInfer": self._infer_method()}
        methods = {
            f"{REWARD_PACKAGE}.RewardService": sessions,
            f"{INFERENCE_PACKAGE}.GRPCInferenceService": inference,
            "grpc.health.v1.Health": {"Check": grpc.stream_unary_rpc_method_handler(self._check_health)},
        }
        handlers = tuple(grpc.method_handlers_generic_handler(*item) for item in methods.items())
        self._server.add_generic_rpc_handlers(handlers)
        self.port = 0

    async def __aenter__(self) -> GrpcServer:
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        self.port = self._server.add_insecure_port(f"{host}:{self._config.grpc_port}")
        await self._server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.stop(self._config.drain_timeout_s)

    def _session_method(self, endpoint: str) -> grpc.RpcMethodHandler:
        async def answer(request: Any, deadline: float) -> Any:
            handle = self._service.handlers[endpoint]
            header_json, blobs = await handle(request.header, memoryview(request.body), deadline)
            return SESSION_CLASSES["SessionResponse"](header=header_json, body=b"".join(blobs))

        return self._rpc_method(SESSION_CLASSES["SessionRequest"], endpoint, answer)

    def _info_method(self, method: str) -> grpc.RpcMethodHandler:
        async def answer(request: Any, deadline: float) -> Any:
            if method.startswith("Model"):
                self._service.check_model_name(request.name)
            return INFERENCE_CLASSES[f"{method}Response"](**INFO_METHODS[method](self._service))

        return self._rpc_method(INFERENCE_CLASSES[f"{method}Request"], None, answer)

    def _infer_method(self) -> grpc.RpcMethodHandler:
        async def answer(request: Any, deadline: float) -> Any:
            self._service.check_model_name(request.model_name)
            return await infer(self._service, request, deadline)

        return self._rpc_method(INFERENCE_CLASSES["ModelInferRequest"], "infer", answer)

    def _rpc_method(self, request_type: Any, endpoint: str | None, handler: RpcHandler) -> grpc.RpcMethodHandler:
        """Build a method that also reads and parses its requests. `endpoint`: label in the metrics; None: not counted.

        A stream handler, since others read the message before the key can be checked. Clients see no difference.
        """

        async def handle(messages: AsyncIterator[bytes], context: aio.ServicerContext) -> bytes:
            PEER.set(grpc_peer(context.peer()))
            timeout_s, remaining_s = self._service.limits.response_timeout_s, context.time_remaining()
            timeout_s = timeout_s if remaining_s is None else min(remaining_s, timeout_s)
            deadline = asyncio.get_running_loop().time() + timeout_s
            try:
                self._check_api_key(context)
                with (
                    self._service.track_request(endpoint) if endpoint is not None else contextlib.nullcontext(),
                    self._service.budget.reserve() as grow_to,
                ):
                    request = await self._read_request(request_type, messages, grow_to)
                    response = await handler(request, deadline)
                    content = bytes(response.SerializeToString())
                self._limit_sending(len(content))
                return content
            except RequestError as raised:
                error = raised.without_traceback()
            await abort_call(context, error)
            raise AssertionError("abort_call raises")

        return grpc.stream_unary_rpc_method_handler(handle)

    def _limit_sending(self, num_bytes: int) -> None:
        """Count a response that the current task sends next as memory, and end the call if the client does not read."""
        task, stack = asyncio.current_task(), contextlib.ExitStack()
        assert task is not None
        stack.enter_context(self._service.budget.reserve())(num_bytes)
        timer = asyncio.get_running_loop().call_later(self._service.limits.body_timeout_s, task.cancel)
        stack.callback(timer.cancel)
        task.add_done_callback(lambda _: stack.close())

    async def _read_request(self, request_type: Any, messages: AsyncIterator[bytes], grow_to: GrowTo) -> Any:
        """Return the message of a call. Its size is known when it has arrived: few calls read at the same time."""
        try:
            async with asyncio.timeout(self._service.limits.body_timeout_s), self._readers:
                async for content in messages:
                    grow_to(len(content))
                    return parse_message(request_type, content)
        except TimeoutError:
            reason = f"the message did not arrive in {self._service.limits.body_timeout_s:g} s"
            raise RequestError(ErrorCode.REQUEST_TIMEOUT, reason) from None
        raise RequestError(ErrorCode.BAD_REQUEST, "the call has no message")

    async def _check_health(self, messages: AsyncIterator[bytes], context: aio.ServicerContext) -> bytes:
        """Return the health of the whole server. It needs no key, so its message is not read."""
        status = health_pb2.HealthCheckResponse
        response = status(status=status.SERVING if self._service.ready else status.NOT_SERVING)
        return bytes(response.SerializeToString())

    def _check_api_key(self, context: aio.ServicerContext) -> None:
        """Raise `RequestError` for a call without the key."""
        if self._api_key is not None:
            metadata = {key.lower(): str(value) for key, value in context.invocation_metadata() or ()}
            check_api_key(extract_api_key(metadata), self._api_key)


def parse_message(message_type: Any, content: bytes) -> Any:
    """Parse a request. Raises `RequestError` for invalid bytes."""
    try:
        return message_type.FromString(content)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(ErrorCode.BAD_REQUEST, f"not a {message_type.DESCRIPTOR.name}: {error}") from None


async def abort_call(context: aio.ServicerContext, error: RequestError) -> None:
    """End a call with the status of an error. Its code and retry delay are in the trailing metadata."""
    trailing_metadata = [("code", error.code.name.lower())]
    if error.retry_after_s is not None:
        trailing_metadata.append(("retry-after-ms", str(round(1000 * error.retry_after_s))))
    if isinstance(error, SessionNotFoundError):
        trailing_metadata.append(("env_ids", json.dumps(error.env_ids)))
    message = error.message.encode("ascii", "replace").decode()
    await context.abort(getattr(grpc.StatusCode, error.code.grpc_status), message, tuple(trailing_metadata))
