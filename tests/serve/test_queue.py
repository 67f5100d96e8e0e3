"""Fair turns and bounds, whoever asks for how much."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.request_queue import RESET, RESTORE, STEP, FairQueue, StatePayload, WorkItem
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.types import Views


def work(client: str, rows: int = 1, size: int = 4, kind: str = STEP, expires: float = 10.0) -> WorkItem:
    views = Views(names=("front",), frames=np.zeros((rows, 1, size, size, 3), np.uint8))
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    if kind == RESTORE:
        state = StatePayload(memoryview(b""), rows, ())
        return WorkItem(
            client_id=client, kind=kind, num_rows=rows, restore_payload=state, deadline=expires, result=future
        )
    return WorkItem(client_id=client, kind=kind, num_rows=rows, views=views, deadline=expires, result=future)


def names(works: list[WorkItem]) -> str:
    return "".join(one.client_id for one in works)


def test_clients_take_turns_however_much_one_of_them_asks() -> None:
    queue = FairQueue(ServeLimits(max_queue=100, max_queue_share=1.0))
    for client in "aaaaaaaabbc":
        queue.put(work(client))
    assert names(queue.take(3, 0)) == "abc"
    assert names(queue.take(3, 0)) == "aba"
    assert names(queue.take(10, 0)) == "aaaaa" and len(queue) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 5)), min_size=1, max_size=40), st.integers(1, 12))
def test_everything_comes_out_once_in_its_clients_order_and_no_batch_is_too_large(asked, most) -> None:
    queue = FairQueue(ServeLimits(max_queue=100, max_queue_share=1.0))
    works = [work(client, rows) for client, rows in asked]
    for one in works:
        queue.put(one)
    out = []
    while batch := queue.take(most, 0):
        assert sum(one.num_rows for one in batch) <= most or len(batch) == 1
        out += batch
    assert Counter(map(id, out)) == Counter(map(id, works))
    for client in "abcd":
        mine = [id(one) for one in works if one.client_id == client]
        assert [id(one) for one in out if one.client_id == client] == mine


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(1, 4))
def test_of_clients_that_always_ask_each_gets_its_share(clients: int, most: int) -> None:
    queue = FairQueue(ServeLimits(max_queue=1000, max_queue_share=1.0))
    for number in range(clients):
        for _ in range(40 * (number + 1)):  # some ask for much more than others
            queue.put(work(str(number)))
    served = Counter()
    for _ in range(40 * clients // most // 2):
        served.update(one.client_id for one in queue.take(most, 0))
    assert min(served.values()) >= 0.8 * sum(served.values()) / clients


def test_only_what_looks_alike_is_judged_side_by_side() -> None:
    queue = FairQueue(ServeLimits())
    for one in (work("a"), work("b", size=8), work("c"), work("d", kind=RESET), work("e", kind=RESTORE)):
        queue.put(one)
    assert [names(queue.take(9, 0)) for _ in range(5)] == ["ac", "b", "d", "e", ""]


def test_more_than_may_wait_is_refused_of_all_and_of_one() -> None:
    queue = FairQueue(ServeLimits(max_queue=4, max_queue_share=0.5))
    queue.put(work("a"))
    queue.put(work("a"))
    with pytest.raises(RequestError, match="2 requests of this run") as refused:
        queue.put(work("a"))
    assert refused.value.code is ErrorCode.TOO_MANY_REQUESTS and refused.value.retry_after_s
    queue.put(work("b"))
    queue.put(work("c"))
    for client in (None, "d"):
        with pytest.raises(RequestError, match="4 requests are waiting"):
            queue.check_capacity(client)
    queue.take(1, 0)
    queue.put(work("d"))


def test_what_is_of_no_use_any_more_is_not_judged() -> None:
    queue = FairQueue(ServeLimits())
    late, good = work("a", expires=1), work("a", expires=9)
    queue.put(late)
    queue.put(good)
    assert queue.take(9, 5.0) == [good] and len(queue) == 0
    fault = late.result.exception()
    assert isinstance(fault, RequestError) and fault.code is ErrorCode.DEADLINE_EXCEEDED
