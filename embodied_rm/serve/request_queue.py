"""What waits to be judged: bounded, and in fair turns, so that no client can keep the others waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.serve.state_store import StateBatch, StateRow
from embodied_rm.types import RewardOutput, Views

RESET, STEP, RESTORE = "begin", "advance", "restore"


@dataclass(frozen=True)
class WorkResult:
    """What came out of a piece of work."""

    state_batch: StateBatch
    """The memory of the whole batch."""
    first_row: int
    """The first of its rows in that."""
    output: RewardOutput | None
    """None of episodes that begin or are taken up."""
    state_bytes: bytes = b""
    """The memory of its rows, where that was asked for."""


class StatePayload(NamedTuple):
    """A memory that was sent back."""

    content: memoryview
    num_rows: int
    """Episodes that it is of."""
    row_indices: tuple[int, ...]
    """Those of them that are taken up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkItem:
    """Rows of one request that are judged together."""

    client_id: str
    kind: str
    num_rows: int
    views: Views | None = None
    instructions: Sequence[str] = ()
    state_rows: Sequence[StateRow] = ()
    """Where their memory is."""
    restore_payload: StatePayload | None = None
    """The memory that is to be taken up."""
    return_state: bool = False
    """Whether the memory is asked for."""
    deadline: float
    """When its answer is of no use any more, by the loop's clock."""
    result: asyncio.Future[WorkResult]

    @property
    def batch_key(self) -> tuple[object, ...]:
        """Works for which this is equal can be judged side by side."""
        if self.views is None:
            return (self.kind, id(self))
        return (self.kind, self.views.names, self.views.frames.shape[2:])


class FairQueue:
    """Works of many clients. Each has its own line, and they take turns."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._queues: dict[str, deque[WorkItem]] = {}
        self._num_items = 0

    def __len__(self) -> int:
        return self._num_items

    @property
    def num_rows(self) -> int:
        """Of all that waits."""
        return sum(item.num_rows for queue in self._queues.values() for item in queue)

    def check_capacity(self, client_id: str | None = None) -> None:
        """Raises `RefusalError` if nothing more of this client, or of any, may wait."""
        if self._num_items >= self._limits.max_queue:
            raise RequestError(
                ErrorCode.TOO_MANY_REQUESTS, f"{self._num_items} requests are waiting already", retry_after_s=1.0
            )
        max_per_client = max(1, int(self._limits.max_queue * self._limits.max_queue_share))
        if client_id is not None and len(self._queues.get(client_id, ())) >= max_per_client:
            raise RequestError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"{max_per_client} requests of this run are waiting already",
                retry_after_s=1.0,
            )

    def put(self, item: WorkItem) -> None:
        """Have it wait. Raises `RefusalError` where no more may."""
        self.check_capacity(item.client_id)
        self._queues.setdefault(item.client_id, deque()).append(item)
        self._num_items += 1

    def take(self, max_rows: int, now: float) -> list[WorkItem]:
        """Works that can be judged side by side, `most` rows of them or one that has more; what has expired is answered
        so, and left out. Whose turn it was waits longest for the next."""
        batch: list[WorkItem] = []
        num_rows = 0
        for client_id in self._round_robin(now):
            queue = self._queues[client_id]
            if not queue:
                continue
            fits = not batch or (queue[0].batch_key == batch[0].batch_key and num_rows + queue[0].num_rows <= max_rows)
            if not fits:
                continue
            batch.append(queue.popleft())
            num_rows += batch[-1].num_rows
            self._num_items -= 1
        served_clients = dict.fromkeys(
            reversed(dict.fromkeys(item.client_id for item in reversed(batch)))
        )  # the last taken, last
        waiting_queues = {
            client_id: queue for client_id, queue in self._queues.items() if queue and client_id not in served_clients
        }
        self._queues = waiting_queues | {
            client_id: self._queues[client_id] for client_id in served_clients if self._queues[client_id]
        }
        return batch

    def _round_robin(self, now: float) -> Iterator[str]:
        """The clients, round after round, as long as a round takes anything."""
        previous_count = -1
        while previous_count != self._num_items:
            previous_count = self._num_items
            for client_id in list(self._queues):
                self._drop_expired(client_id, now)
                yield client_id

    def _drop_expired(self, client_id: str, now: float) -> None:
        queue = self._queues[client_id]
        while queue and queue[0].deadline <= now:
            item = queue.popleft()
            self._num_items -= 1
            if not item.result.done():
                item.result.set_exception(
                    RequestError(ErrorCode.DEADLINE_EXCEEDED, "its time was over before it was judged")
                )
