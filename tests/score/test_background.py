"""Labels that are made beside something else: what is stored is learned from, and what is not is counted."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from sprites import episode

from embodied_rm.data.catalog import open_data
from embodied_rm.data.judgements import Judgements
from embodied_rm.errors import UserError
from embodied_rm.models.base import Sight
from embodied_rm.run import Silent
from embodied_rm.score import Scorer
from embodied_rm.score.background import FILMS, BackgroundScorer, LabellingConfig
from embodied_rm.types import Progress


class Waiting:
    """Says how many hundredths of a hundred frames have gone by, and judges nothing before it may."""

    sight = Sight()

    def __init__(self) -> None:
        self.may = threading.Event()

    def begin(self, views, instructions, goal=None, reference=None) -> int:
        self.may.wait(30)
        return 0

    def advance(self, memory: int, views) -> tuple[Progress, int]:
        zero = np.zeros(1, np.float32)
        value = zero + (memory + 1) / 100
        valid, stage = np.ones(1, bool), np.zeros(1, np.int64)
        return Progress(value=value, valid=valid, stage=stage, success=zero, spread=zero), memory + 1


class Broken(Waiting):
    def advance(self, memory: int, views) -> tuple[Progress, int]:
        raise UserError("the judge fell ill")


def labels(folder: Path, model: Waiting | None = None, judge: str = "counter", **how: int) -> BackgroundScorer:
    model = model or Waiting()
    if "waiting" not in how:
        model.may.set()
    return BackgroundScorer(Scorer(model=model), folder, LabellingConfig(**{"part": 3, **how}), judge)


def test_films_and_what_was_said_of_them_lie_side_by_side(tmp_path: Path) -> None:
    films = [episode(number, length=5 + number) for number in range(7)]
    with labels(tmp_path) as some:
        for film in films[:5]:
            some.offer(film)
        some.finish(Silent())
        assert len(some) == 5
    with labels(tmp_path) as more:  # the run is gone on with
        for film in films[5:]:
            more.offer(film)
        more.finish(Silent())
        assert len(more) == 7 and more.dropped == 0
    assert sorted(path.name for path in (tmp_path / FILMS).iterdir()) == ["00000", "00001", "00002"]
    source, told = open_data(tmp_path / FILMS), Judgements.read(tmp_path)
    for row, film in enumerate(films):
        stored = told.beside(source.episode(row), source.meta[row].number, source.meta[row].length, 1)
        assert stored.instruction == film.instruction
        assert np.abs(stored.views["top"].astype(int) - film.views["top"]).mean() < 8
        np.testing.assert_allclose(stored.judged.value, np.arange(len(film)) / 100, atol=1e-6)
        assert stored.judged.valid.all()


def test_more_than_may_wait_are_dropped_and_counted(tmp_path: Path) -> None:
    judge = Waiting()
    with labels(tmp_path, judge, waiting=2) as some:
        for number in range(6):
            some.offer(episode(number, length=5))
        assert some.dropped == 4
        judge.may.set()
        some.finish(Silent())
        assert len(some) == 2


def test_half_a_dataset_of_a_killed_run_is_no_dataset(tmp_path: Path) -> None:
    with labels(tmp_path) as some:
        for number in range(3):
            some.offer(episode(number, length=5))
        some.finish(Silent())
    left = tmp_path / FILMS / ".00001.partial-abcdef01"
    left.mkdir()
    with labels(tmp_path) as more:
        assert not left.exists() and len(more) == 3
        more.offer(episode(9, length=6))
        more.finish(Silent())
    assert [meta.length for meta in open_data(tmp_path / FILMS).meta] == [5, 5, 5, 6]


def test_a_judge_that_fails_is_told_to_whoever_makes_films(tmp_path: Path) -> None:
    with labels(tmp_path, Broken()) as some, pytest.raises(UserError, match="fell ill"):
        some.offer(episode(0, length=5))
        some.finish(Silent())


def test_another_judge_does_not_go_on_with_it(tmp_path: Path) -> None:
    with labels(tmp_path):
        pass
    with pytest.raises(UserError, match="another judge labelled this"):
        labels(tmp_path, judge="somebody")
    with pytest.raises(UserError, match=r"labelling\.part must be >= 1, got 0"):
        LabellingConfig(part=0)
