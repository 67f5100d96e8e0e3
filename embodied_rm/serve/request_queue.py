"""Bounded request queue with round-robin over clients, so that no client can starve the others."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from embodied_rm.serve.protocol import StatePayload
from embodied_rm.serve.request_errors import ErrorCode, RequestError, overload_error
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.serve.state_store import StateBatch, StateRow
from embodied_rm.types import RewardOutput, Views

RESET, STEP, RESTORE = "reset", "step", "restore"
DEADLINE_MESSAGE = "the deadline passed before the request was scored"


@dataclass(frozen=True)
class WorkResult:
    """Result of a work item."""

    state_batch: StateBatch  # state of the whole batch
    first_row: int  # first row of the item within the batch
    output: RewardOutput | None  # None for episodes that are restored
    state_bytes: bytes = b""  # state of the item's rows, if requested


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkItem:
    """Rows of one request that are scored in one batch."""

    client_id: str
    kind: str
    num_rows: int
    views: Views | None = None
    instructions: Sequence[str] = ()
    state_rows: Sequence[StateRow] = ()  # current state of each row
    restore_payload: StatePayload | None = None
    return_state: bool = False
    deadline: float  # latest time for the response, on the loop's clock
    result: asyncio.Future[WorkResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def batch_key(self) -> tuple[object, ...]:
        """Items with equal keys can share a batch."""
        own_key = (self.kind, id(self))
        return own_key if self.views is None else (self.kind, self.views.names, self.views.frames.shape[2:])


class FairQueue:
    """Work items of many clients: one FIFO per client, served round-robin."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._queues: dict[str, deque[WorkItem]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def num_rows(self) -> int:
        """Number of queued rows."""
        return sum(item.num_rows for queue in self._queues.values() for item in queue)

    def check_capacity(self, client_id: str | None = None) -> None:
        """Raise `RequestError` if the queue is full, overall or for this client."""
        if len(self) >= self._limits.max_queue:
            raise overload_error(f"{len(self)} requests are queued already")
        max_per_client = max(1, int(self._limits.max_queue * self._limits.max_client_share))
        if client_id is not None and len(self._queues.get(client_id, ())) >= max_per_client:
            raise overload_error(f"{max_per_client} requests of this client are queued already")

    def put(self, item: WorkItem) -> None:
        """Append an item. Raises `RequestError` if the queue is full."""
        self.check_capacity(item.client_id)
        self._queues.setdefault(item.client_id, deque()).append(item)

    def take(self, max_rows: int, now: float) -> list[WorkItem]:
        """Take items for one batch: `max_rows` rows, or a single item with more.

        Expired items are completed with an error and left out. The clients served now are last in the next round.
        """
        batch: list[WorkItem] = []
        num_rows = 0
        for client_id in self._round_robin(now):
            queue = self._queues[client_id]
            if queue and (
                not batch or (queue[0].batch_key == batch[0].batch_key and num_rows + queue[0].num_rows <= max_rows)
            ):
                batch.append(queue.popleft())
                num_rows += batch[-1].num_rows
                self._queues[client_id] = self._queues.pop(client_id)
        self._queues = {client_id: queue for client_id, queue in self._queues.items() if queue}
        return batch

    def _round_robin(self, now: float) -> Iterator[str]:
        """Yield the clients, round after round, until a round takes nothing."""
        previous_count = -1
        while previous_count != len(self):
            previous_count = len(self)
            for client_id in list(self._queues):
                self._drop_expired(client_id, now)
                yield client_id

    def _drop_expired(self, client_id: str, now: float) -> None:
        queue = self._queues[client_id]
        while queue and queue[0].deadline <= now:
            item = queue.popleft()
            if not item.result.done():
                item.result.set_exception(RequestError(ErrorCode.DEADLINE_EXCEEDED, DEADLINE_MESSAGE))
