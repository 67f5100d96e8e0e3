"""Fair scheduling and bounds of the request queue."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_rm.serve.protocol import StatePayload
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.request_queue import RESET, RESTORE, STEP, FairQueue, WorkItem
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.types import Views


def make_item(client: str, rows: int = 1, size: int = 4, kind: str = STEP, deadline: float = 10.0) -> WorkItem:
    views = Views(names=("front",), frames=np.zeros((rows, 1, size, size, 3), np.uint8))
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    if kind == RESTORE:
        state = StatePayload(memoryview(b""), rows, ())
        return WorkItem(
            client_id=client, kind=kind, num_rows=rows, restore_payload=state, deadline=deadline, result=future
        )
    return WorkItem(client_id=client, kind=kind, num_rows=rows, views=views, deadline=deadline, result=future)


def client_ids(items: list[WorkItem]) -> str:
    return "".join(item.client_id for item in items)


def test_clients_are_served_round_robin() -> None:
    queue = FairQueue(ServeLimits(max_queue=100, max_client_share=1.0))
    for client in "aaaaaaaabbc":
        queue.put(make_item(client))
    assert client_ids(queue.take(3, 0)) == "abc"
    assert client_ids(queue.take(3, 0)) == "aba"
    assert client_ids(queue.take(10, 0)) == "aaaaa" and len(queue) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 5)), min_size=1, max_size=40), st.integers(1, 12))
def test_items_come_out_once_in_order_and_batches_are_bounded(requests, max_rows) -> None:
    queue = FairQueue(ServeLimits(max_queue=100, max_client_share=1.0))
    items = [make_item(client, rows) for client, rows in requests]
    for item in items:
        queue.put(item)
    taken = []
    while batch := queue.take(max_rows, 0):
        assert sum(item.num_rows for item in batch) <= max_rows or len(batch) == 1
        taken += batch
    assert Counter(map(id, taken)) == Counter(map(id, items))
    for client in "abcd":
        expected = [id(item) for item in items if item.client_id == client]
        assert [id(item) for item in taken if item.client_id == client] == expected


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(1, 4))
def test_saturating_clients_get_equal_shares(clients: int, max_rows: int) -> None:
    queue = FairQueue(ServeLimits(max_queue=1000, max_client_share=1.0))
    for number in range(clients):
        for _ in range(40 * (number + 1)):  # some clients queue much more than others
            queue.put(make_item(str(number)))
    served = Counter()
    for _ in range(40 * clients // max_rows // 2):
        served.update(item.client_id for item in queue.take(max_rows, 0))
    assert min(served.values()) >= 0.8 * sum(served.values()) / clients


def test_only_items_of_equal_kind_and_shape_share_a_batch() -> None:
    queue = FairQueue(ServeLimits())
    for item in (
        make_item("a"),
        make_item("b", size=8),
        make_item("c"),
        make_item("d", kind=RESET),
        make_item("e", kind=RESTORE),
    ):
        queue.put(item)
    assert [client_ids(queue.take(9, 0)) for _ in range(5)] == ["ac", "b", "d", "e", ""]


def test_full_queue_rejects_per_client_and_overall() -> None:
    queue = FairQueue(ServeLimits(max_queue=4, max_client_share=0.5))
    queue.put(make_item("a"))
    queue.put(make_item("a"))
    with pytest.raises(RequestError, match="2 requests of this client") as raised:
        queue.put(make_item("a"))
    assert raised.value.code is ErrorCode.TOO_MANY_REQUESTS and raised.value.retry_after_s
    queue.put(make_item("b"))
    queue.put(make_item("c"))
    for client in (None, "d"):
        with pytest.raises(RequestError, match="4 requests are queued"):
            queue.check_capacity(client)
    queue.take(1, 0)
    queue.put(make_item("d"))


def test_expired_items_are_dropped() -> None:
    queue = FairQueue(ServeLimits())
    expired, valid = make_item("a", deadline=1), make_item("a", deadline=9)
    queue.put(expired)
    queue.put(valid)
    assert queue.take(9, 5.0) == [valid] and len(queue) == 0
    error = expired.result.exception()
    assert isinstance(error, RequestError) and error.code is ErrorCode.DEADLINE_EXCEEDED
