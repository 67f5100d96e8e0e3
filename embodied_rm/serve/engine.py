"""Batched inference in a thread. While one batch runs, the next one is collected."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors

from embodied_rm.checkpoint_io import to_safetensors
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import RewardState, SerializableState, first_outputs
from embodied_rm.serve.model_handle import ModelHandle
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.request_queue import RESET, STEP, FairQueue, WorkItem, WorkResult
from embodied_rm.serve.service_config import ServeConfig
from embodied_rm.serve.service_metrics import LOGGER, ServiceMetrics, log_event
from embodied_rm.serve.state_store import StateBatch, StateRow, gather_states
from embodied_rm.serve.state_validation import validate_state
from embodied_rm.types import RewardOutput, Views


class InferenceEngine:
    """Runs a model on queued requests. `async with engine:` runs it."""

    def __init__(
        self, model_handle: ModelHandle, queue: FairQueue, metrics: ServiceMetrics, config: ServeConfig
    ) -> None:
        self._model, self._example_state = model_handle.model, model_handle.example_state
        self._executor = model_handle.executor
        self._queue, self._metrics, self._limits = queue, metrics, config.limits
        self._max_batch_size, self._max_queue_delay_s = config.max_batch_size, config.max_queue_delay_ms / 1000
        self._has_work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> InferenceEngine:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @property
    def is_running(self) -> bool:
        """Whether the engine still processes requests."""
        return self._task is not None and not self._task.done()

    def submit(self, item: WorkItem) -> asyncio.Future[WorkResult]:
        """Queue a work item. Returns the future of its result. Raises `RequestError` if the queue is full."""
        self._queue.put(item)
        self._has_work.set()
        return item.result

    async def serialize_state(self, rows: Sequence[StateRow]) -> bytes:
        """Return the serialized state of rows."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, serialize_rows, rows)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._has_work.wait()
            await self._wait_for_batch()
            items = self._queue.take(self._max_batch_size, loop.time())
            if not items:
                self._has_work.clear()
                continue
            await self._run_batch(items)
            await asyncio.sleep(0)  # lets answered clients queue their next request before the next batch is taken

    async def _run_batch(self, items: Sequence[WorkItem]) -> None:
        """Run a batch. If it fails, run each item alone, so that one item cannot fail the others."""
        start_s = time.perf_counter()
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._executor, self._forward_batch, items)
        except Exception as error:
            for item in items:
                if len(items) > 1:
                    await self._run_batch([item])
                elif not item.result.done():
                    item.result.set_exception(self._to_request_error(error))
            return
        self._metrics.batch_size.observe(sum(item.num_rows for item in items))
        self._metrics.inference_duration.observe(time.perf_counter() - start_s)
        for item, result in zip(items, results, strict=True):
            if not item.result.done():
                item.result.set_result(result)

    async def _wait_for_batch(self) -> None:
        """Give a batch that is not full time to fill."""
        deadline = time.monotonic() + self._max_queue_delay_s
        while (
            self._max_queue_delay_s
            and self._queue.num_rows < self._max_batch_size
            and (remaining_s := deadline - time.monotonic()) > 0
        ):
            await asyncio.sleep(min(remaining_s, self._max_queue_delay_s / 8))

    def _to_request_error(self, error: Exception) -> Exception:
        """Convert an exception to the one that the client gets."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, UserError):
            return RequestError(ErrorCode.VALIDATION_ERROR, str(error))
        self._metrics.model_errors.inc()
        LOGGER.error("the model failed", exc_info=error)
        return RequestError(ErrorCode.INTERNAL_ERROR, f"the model failed: {type(error).__name__}")

    # In the inference thread

    def _forward_batch(self, items: Sequence[WorkItem]) -> list[WorkResult]:
        views = [item.views for item in items if item.views is not None]
        state: RewardState
        output: RewardOutput | None = None
        if items[0].kind == RESET:
            state = self._model.reset(concat_views(views), [text for item in items for text in item.instructions])
            output = first_outputs(self._model, state)
        elif items[0].kind == STEP:
            states = gather_states([row for item in items for row in item.state_rows])
            output, state = self._step_finite(states, concat_views(views))
        else:
            state = self._load_state(items[0])
        state_batch, first_row, results = StateBatch(state), 0, list[WorkResult]()
        for item in items:
            rows = range(first_row, first_row + item.num_rows)
            batch_columns = {} if output is None else vars(output)
            columns = {name: column[rows.start : rows.stop] for name, column in batch_columns.items()}
            item_output = RewardOutput(**columns) if columns else None
            state_bytes = serialize_rows([(state, row) for row in rows]) if item.return_state else b""
            results.append(WorkResult(state_batch, first_row, item_output, state_bytes))
            first_row = rows.stop
        return results

    def _step_finite(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Advance by one frame. Rows with non-finite outputs keep their state and are marked invalid."""
        output, next_state = self._model.step(state, views)
        non_finite = ~(np.isfinite(output.progress) & np.isfinite(output.uncertainty))
        if not non_finite.any():
            return output, next_state
        bad_rows = np.flatnonzero(non_finite)
        self._metrics.non_finite_outputs.inc(len(bad_rows))
        log_event("non_finite", num_rows=len(bad_rows))
        progress, uncertainty = output.progress.copy(), output.uncertainty.copy()
        progress[bad_rows], uncertainty[bad_rows] = state.potential()[bad_rows], 0
        masked_output = replace(output, progress=progress, uncertainty=uncertainty, valid=output.valid & ~non_finite)
        return masked_output, next_state.put(bad_rows, state.take(bad_rows))

    def _load_state(self, item: WorkItem) -> RewardState:
        """Return the state from a client. Raises `RequestError` if it does not belong to this model."""
        assert item.restore_payload is not None
        try:
            tensors = parse_tensors(bytes(item.restore_payload.content))
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise RequestError(ErrorCode.VALIDATION_ERROR, f"state: not a valid state ({error})") from None
        validate_state(tensors, self._example_state, item.restore_payload.num_rows, self._limits)
        return self._example_state.from_state_dict(tensors).take(np.array(item.restore_payload.row_indices))


def serialize_rows(rows: Sequence[StateRow]) -> bytes:
    """Serialize the states of rows, so that a client can send them back."""
    state = gather_states(rows)
    assert isinstance(state, SerializableState)
    return to_safetensors(state.state_dict())


def concat_views(views: Sequence[Views]) -> Views:
    """Concatenate the views of several work items."""
    if len(views) == 1:
        return views[0]
    return Views(names=views[0].names, frames=np.concatenate([np.asarray(batch.frames) for batch in views]))
