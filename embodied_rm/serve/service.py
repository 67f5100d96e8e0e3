"""The reward service, independent of the transport: request bytes in, response bytes out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from embodied_rm.client.wire import Message, encode_response
from embodied_rm.serve import protocol
from embodied_rm.serve.engine import InferenceEngine
from embodied_rm.serve.image_decoder import ImageDecoder
from embodied_rm.serve.memory_budget import GrowTo, MemoryBudget
from embodied_rm.serve.model_handle import ModelHandle, trim_when_idle
from embodied_rm.serve.protocol import EpisodeBatch, FrameRequest, FrameRequestHeader, RestoreRequest, SessionRequest
from embodied_rm.serve.request_errors import ErrorCode, RequestError, validation_error
from embodied_rm.serve.request_queue import DEADLINE_MESSAGE, RESET, RESTORE, STEP, FairQueue, WorkItem
from embodied_rm.serve.service_config import ServeConfig
from embodied_rm.serve.service_metrics import OK_STATUS, ServiceMetrics
from embodied_rm.serve.sessions import OUTPUT_DTYPES, UNKNOWN_VALUE, OutputColumns, SessionStore
from embodied_rm.types import RewardOutput, Views

Handler = Callable[[bytes | memoryview, memoryview, float], Coroutine[Any, Any, Message]]
"""(JSON of a request, the bytes that follow it, its deadline on the loop's clock) -> response."""


class BatchResult(NamedTuple):
    """Result of scoring the rows of a request."""

    columns: OutputColumns
    state_bytes: bytes  # state of the rows, if requested and if all rows were scored
    committed: asyncio.Future[None]  # done when the result is stored


class RewardService:
    """A reward model that scores episodes of many clients. `async with service:` runs it.

    Every `handle_*` is a `Handler` that raises `RequestError`.
    """

    def __init__(self, model_handle: ModelHandle, config: ServeConfig) -> None:
        self.metadata, self.config, self.metrics = model_handle.metadata, config, ServiceMetrics()
        self.draining, self.limits = False, config.limits
        self.sessions = SessionStore(config.limits)
        self.queue = FairQueue(config.limits)
        self.engine = InferenceEngine(model_handle, self.queue, self.metrics, config)
        self.budget, self._image_decoder = MemoryBudget(config.limits), ImageDecoder(config.limits)
        self.handlers: dict[str, Handler] = {
            "reset": self.handle_reset,
            "step": self.handle_step,
            "end": self.handle_end,
            "restore": self.handle_restore,
        }
        description = "Bytes of buffered request bodies and of decoded images"
        self.metrics.add_gauge("buffered_request_bytes", description, lambda: self.budget.reserved_bytes)
        self.metrics.add_gauge("active_sessions", "Active episodes", lambda: len(self.sessions))
        self.metrics.add_gauge("queued_requests", "Queued requests", lambda: len(self.queue))
        self.metrics.add_gauge("ready", "Whether the service accepts requests", lambda: float(self.ready))

    async def __aenter__(self) -> RewardService:
        await self.engine.__aenter__()
        self._image_decoder.start()
        self._trim_task = asyncio.create_task(trim_when_idle())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._trim_task.cancel()
        await self.engine.__aexit__(*error)
        self._image_decoder.shutdown()

    @property
    def ready(self) -> bool:
        """Whether requests are accepted: the self-test passed, the engine runs, and no shutdown is in progress."""
        return self.metadata.passed_self_test and self.engine.is_running and not self.draining

    def check_model_name(self, name: str) -> None:
        """Raise `RequestError` for a model name that is not served here."""
        if name != self.metadata.name:
            message = f"model {name[:60]!r} not found, available: {self.metadata.name!r}"
            raise RequestError(ErrorCode.MODEL_NOT_FOUND, message)

    @property
    def model_info(self) -> dict[str, str]:
        """Name and version of the model, by the Open Inference Protocol."""
        return {"model_name": self.metadata.name, "model_version": self.metadata.version}

    @contextmanager
    def track_request(self, endpoint: str) -> Iterator[None]:
        """Count a request on entry and on exit. Raises `RequestError` if no request is accepted now."""
        loop = asyncio.get_running_loop()
        start_s, status = loop.time(), OK_STATUS
        self.metrics.accepted_requests.labels(endpoint).inc()
        try:
            if not self.ready:
                reason = "it is shutting down" if self.draining else "the model failed its self-test"
                raise RequestError(ErrorCode.NOT_READY, f"the service accepts no requests: {reason}", retry_after_s=1.0)
            self.queue.check_capacity()
            yield
        except RequestError as error:
            status = error.code.name.lower()
            raise
        except BaseException:
            status = ErrorCode.INTERNAL_ERROR.name.lower()
            raise
        finally:
            self.metrics.requests.labels(endpoint, status).inc()
            self.metrics.request_duration.observe(loop.time() - start_s)

    def to_output_columns(self, output: RewardOutput) -> OutputColumns:
        """Convert a prediction to the columns that are sent, and count it. NaN becomes `UNKNOWN_VALUE`."""
        self.metrics.invalid_frames.inc(int((~output.valid).sum()))
        self.metrics.ood_frames.inc(int((output.ood > 1).sum()))
        columns = {name: getattr(output, name) for name in OUTPUT_DTYPES}
        for name in ("success", "ood"):
            columns[name] = np.where(np.isfinite(columns[name]), columns[name], np.float32(UNKNOWN_VALUE))
        return {name: column.astype(OUTPUT_DTYPES[name], copy=False) for name, column in columns.items()}

    async def handle_reset(self, header_json: bytes | memoryview, payload: memoryview, deadline: float) -> Message:
        header = protocol.parse_header(protocol.ResetHeader, header_json)
        episodes = protocol.parse_episodes(header, self.limits)
        instructions = protocol.validate_instructions(header.instructions, len(episodes), self.limits)
        with self.budget.reserve() as grow_to:
            frames = await self._parse_frames(header, episodes, payload, deadline, grow_to, instructions)
            steps = (0,) * len(episodes)
            return await self._predict(FrameRequest(episodes=episodes, steps=steps, **frames), deadline)

    async def handle_step(self, header_json: bytes | memoryview, payload: memoryview, deadline: float) -> Message:
        header = protocol.parse_header(protocol.StepHeader, header_json)
        episodes = protocol.parse_episodes(header, self.limits)
        steps = protocol.validate_counts("steps", header.steps, len(episodes))
        if min(steps) < 1:
            raise validation_error("steps", min(steps), "from 1 on: step 0 is the frame that begins an episode")
        with self.budget.reserve() as grow_to:
            frames = await self._parse_frames(header, episodes, payload, deadline, grow_to)
            return await self._predict(FrameRequest(episodes=episodes, steps=steps, **frames), deadline)

    async def handle_end(self, header_json: bytes | memoryview, payload: memoryview, deadline: float) -> Message:
        episodes = protocol.parse_episodes(protocol.parse_header(protocol.EpisodesHeader, header_json), self.limits)
        if len(payload):
            raise RequestError(ErrorCode.BAD_REQUEST, f"{len(payload)} unexpected bytes after the JSON")
        return encode_response({}, {"num_ended": self.sessions.end(episodes)})

    async def handle_restore(self, header_json: bytes | memoryview, payload: memoryview, deadline: float) -> Message:
        header = protocol.parse_header(protocol.RestoreHeader, header_json)
        episodes = protocol.parse_episodes(header, self.limits)
        if header.state_bytes != len(payload):
            raise validation_error("state_bytes", f"{len(payload)} bytes", f"{header.state_bytes}, as the JSON says")
        if not self.metadata.supports_restore:
            message = "state_bytes: this model's state can be neither returned nor restored"
            raise RequestError(ErrorCode.VALIDATION_ERROR, message)
        steps = protocol.validate_counts("steps", header.steps, len(episodes))
        state_rows = protocol.validate_counts("state_rows", header.state_rows, len(episodes))
        num_rows, max_rows = header.num_state_rows, self.limits.max_envs_per_request
        if not max(state_rows) < num_rows <= max_rows:
            raise validation_error("state_rows", f"{max(state_rows)} of {num_rows}", f"rows of at most {max_rows}")
        fingerprints = (protocol.UNKNOWN_FINGERPRINT,) * len(episodes)
        state = protocol.StatePayload(payload, num_rows, state_rows)
        request = RestoreRequest(episodes=episodes, steps=steps, fingerprints=fingerprints, payload=state)
        self.sessions.check_restore(request)
        await (await self._run_batch(request, range(len(episodes)), deadline)).committed
        return encode_response({}, {"num_restored": len(episodes)})

    async def _parse_frames(
        self,
        header: FrameRequestHeader,
        episodes: EpisodeBatch,
        payload: memoryview,
        deadline: float,
        grow_to: GrowTo,
        instructions: tuple[str, ...] | None = None,
    ) -> dict[str, Any]:
        """Return the fields of a `FrameRequest`. `grow_to`: reserves memory for the pixels of encoded images."""
        frames = protocol.parse_frames(header.frames, header.views, len(episodes), payload, self.limits)
        if frames.images is None:
            pixels = frames.view_pixels()
        else:
            images = await self._image_decoder.decode(episodes.client_id, frames.images, deadline, grow_to)
            pixels = images.reshape(*frames.shape, *images.shape[1:])
        views = Views(names=frames.view_names, frames=pixels)
        return {
            "views": views,
            "fingerprints": protocol.fingerprint_rows(len(episodes), frames, instructions),
            "return_state": header.return_state,
            "instructions": instructions,
        }

    async def _predict(self, request: FrameRequest, deadline: float) -> Message:
        """Respond for every row: score the new ones, look up the others."""
        if request.return_state and not self.metadata.supports_restore:
            raise RequestError(ErrorCode.VALIDATION_ERROR, "return_state: this model's state cannot be returned")
        new_rows, futures = self.sessions.partition(request)
        if len(new_rows) == len(request.episodes):
            columns, state_bytes, _ = await self._run_batch(request, new_rows, deadline)
        else:
            if new_rows:
                await (await self._run_batch(request, new_rows, deadline)).committed
            try:
                async with asyncio.timeout_at(deadline):
                    for future in dict.fromkeys(futures):
                        await asyncio.shield(future)
            except TimeoutError:
                raise RequestError(ErrorCode.DEADLINE_EXCEEDED, DEADLINE_MESSAGE) from None
            columns = self.sessions.cached_outputs(request)
            state_rows = self.sessions.state_rows(request.episodes, range(len(request.episodes)))
            state_bytes = await self.engine.serialize_state(state_rows) if request.return_state else b""
        metadata = {"model_version": self.metadata.version, "state_bytes": len(state_bytes)}
        return encode_response(columns, metadata, state_bytes)

    async def _run_batch(self, request: SessionRequest, row_indices: Sequence[int], deadline: float) -> BatchResult:
        """Score rows. The result is stored while the client reads the response, and before the next request."""
        committed = self.sessions.mark_pending(request, row_indices)
        try:
            result = await self.engine.submit(self._make_work_item(request, row_indices, deadline))
        except BaseException:
            self.sessions.clear_pending(request, row_indices)
            committed.set_result(None)
            raise
        columns = None if result.output is None else self.to_output_columns(result.output)

        def commit() -> None:
            self.sessions.commit(request, row_indices, result, columns)
            committed.set_result(None)
            for fingerprint in request.fingerprints:  # releases the frames
                fingerprint.digest()

        self.sessions.defer(commit)
        return BatchResult(columns or {}, result.state_bytes, committed)

    def _make_work_item(self, request: SessionRequest, row_indices: Sequence[int], deadline: float) -> WorkItem:
        is_full_request, fields = len(row_indices) == len(request.episodes), dict[str, Any]()
        if isinstance(request, RestoreRequest):
            fields = {"kind": RESTORE, "restore_payload": request.payload}
        elif isinstance(request, FrameRequest):
            views = request.views if is_full_request else request.views.select(np.array(row_indices))
            fields = {"views": views, "return_state": request.return_state and is_full_request}
            if request.instructions is None:
                fields |= {"kind": STEP, "state_rows": self.sessions.state_rows(request.episodes, row_indices)}
            else:
                fields |= {"kind": RESET, "instructions": [request.instructions[row] for row in row_indices]}
        return WorkItem(client_id=request.episodes.client_id, num_rows=len(row_indices), deadline=deadline, **fields)
