"""Bounded request queue with round-robin over machines and the clients of each, so that none starves the others."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from embodied_rm.serve.peer import PEER, largest_other
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
    peer: str = field(default_factory=PEER.get)
    deadline: float  # latest time for the response, on the loop's clock
    result: asyncio.Future[WorkResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def batch_key(self) -> tuple[object, ...]:
        """Items with equal keys can share a batch."""
        own_key = (self.kind, id(self))
        return own_key if self.views is None else (self.kind, self.views.names, self.views.frames.shape[2:])


class FairQueue:
    """Work items of many clients: one FIFO per client, served round-robin over peers, and over the clients of each.

    A full queue has room for a peer with fewer items than another. The last item of the other's longest client queue is
    then completed with an error.
    """

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._queues: dict[str, dict[str, deque[WorkItem]]] = {}  # by peer, then by client

    def __len__(self) -> int:
        return sum(map(len, self._all_queues()))

    @property
    def num_rows(self) -> int:
        """Number of queued rows."""
        return sum(item.num_rows for queue in self._all_queues() for item in queue)

    def check_capacity(self, client_id: str | None = None) -> None:
        """Raise `RequestError` if the queue is full for the peer of the current task, or for this client of it."""
        peer = PEER.get()
        if len(self) >= self._limits.max_queue and self._find_larger(peer) is None:
            raise overload_error(f"{len(self)} requests are queued already")
        max_per_client = self._limits.max_client_queue
        if client_id is not None and len(self._queues.get(peer, {}).get(client_id, ())) >= max_per_client:
            raise overload_error(f"{max_per_client} requests of this client are queued already")

    def put(self, item: WorkItem) -> None:
        """Append an item of the current task. Raises `RequestError` if the queue is full."""
        self.check_capacity(item.client_id)
        if len(self) >= self._limits.max_queue and (larger := self._find_larger(item.peer)) is not None:
            last = max(self._queues[larger].values(), key=len).pop()
            _fail(last, overload_error("other machines need the queue"))
        self._queues.setdefault(item.peer, {}).setdefault(item.client_id, deque()).append(item)

    def take(self, max_rows: int, now: float) -> list[WorkItem]:
        """Take items for one batch: `max_rows` rows, or a single item with more.

        Expired items are completed with an error and left out. Those served now are last in the next round.
        """
        self._drop_expired(now)
        batch: list[WorkItem] = []
        previous_count = -1
        while previous_count != len(batch):
            previous_count = len(batch)
            for peer in list(self._queues):
                if (item := self._take_one(peer, batch, max_rows)) is not None:
                    batch.append(item)
        self._queues = {
            peer: clients
            for peer, queues in self._queues.items()
            if (clients := {c: q for c, q in queues.items() if q})
        }
        return batch

    def _take_one(self, peer: str, batch: Sequence[WorkItem], max_rows: int) -> WorkItem | None:
        """Take the next item of a peer that fits into the batch."""
        num_rows, clients = sum(item.num_rows for item in batch), self._queues[peer]
        for client_id, queue in clients.items():
            while queue and queue[0].result.done():  # its request has ended
                queue.popleft()
            if queue and (
                not batch or (queue[0].batch_key == batch[0].batch_key and num_rows + queue[0].num_rows <= max_rows)
            ):
                clients[client_id] = clients.pop(client_id)
                self._queues[peer] = self._queues.pop(peer)
                return queue.popleft()
        return None

    def _drop_expired(self, now: float) -> None:
        for queue in self._all_queues():
            while queue and queue[0].deadline <= now:
                _fail(queue.popleft(), RequestError(ErrorCode.DEADLINE_EXCEEDED, DEADLINE_MESSAGE))

    def _find_larger(self, peer: str) -> str | None:
        """Return the peer with the most items, if it would still have more than this one with one more."""
        counts = {name: sum(map(len, clients.values())) for name, clients in self._queues.items()}
        return largest_other(counts, peer, counts.get(peer, 0) + 1)

    def _all_queues(self) -> list[deque[WorkItem]]:
        return [queue for clients in self._queues.values() for queue in clients.values()]


def _fail(item: WorkItem, error: RequestError) -> None:
    """Complete an item with an error, unless its client has gone."""
    if not item.result.done():
        item.result.set_exception(error)
