"""What comes next is ready when it is asked for, and is what it would have been without that."""

from __future__ import annotations

import threading

import pytest

from embodied_rm.models.ahead import Ahead


def test_the_next_one_is_made_while_this_one_is_used() -> None:
    made: dict[int, threading.Event] = {number: threading.Event() for number in range(9)}

    def make(number: int) -> int:
        made[number].set()
        return number * number

    with Ahead(make) as ahead:
        assert ahead.take(0) == 0
        assert made[1].wait(5), "nobody has asked for it yet"
        assert [ahead.take(1), ahead.take(2)] == [1, 4]
        assert ahead.take(5) == 25, "one that was not the next is made too"
        assert ahead.take(6) == 36


def test_what_goes_wrong_is_raised_when_it_is_asked_for() -> None:
    def make(number: int) -> int:
        if number == 1:
            raise ValueError("one is not to be had")
        return number

    with Ahead(make) as ahead:
        assert ahead.take(0) == 0
        with pytest.raises(ValueError, match="not to be had"):
            ahead.take(1)
