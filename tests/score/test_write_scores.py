"""The table that scores are put together in."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.data.source import EpisodeMeta
from embodied_rm.score.write_scores import (
    ROW_GROUP_SIZE,
    episode_table,
    first_frame_indices,
    prediction_from_table,
    split_row_groups,
    write_table,
)
from embodied_rm.types import RewardOutput


def curve(length: int, seed: int = 0) -> RewardOutput:
    rng = np.random.default_rng(seed)
    numbers = rng.random((4, length), np.float32)
    return RewardOutput(
        progress=numbers[0],
        valid=numbers[1] > 0.5,
        subtask=rng.integers(0, 5, length),
        success=numbers[2],
        uncertainty=numbers[3],
    )


def meta(name: str, length: int, number: int | None = None, first: int | None = None) -> EpisodeMeta:
    return EpisodeMeta(name=name, length=length, instruction="go", episode_index=number, dataset_from_index=first)


def test_a_prediction_comes_back_from_its_table() -> None:
    for scale in (None, 1.5):
        before = curve(9)
        after = prediction_from_table(episode_table(2, before, meta("a", 9), 40, scale))
        for name, column in vars(before).items():
            np.testing.assert_array_equal(getattr(after, name), column)
            assert getattr(after, name).dtype == column.dtype


def test_frames_are_counted_over_those_that_are_left_out_too() -> None:
    counted = [meta("a", 4), meta("b", 3), meta("c", 5)]
    assert first_frame_indices(counted).tolist() == [0, 4, 7]
    stored = [meta("a", 4, number=0, first=0), meta("c", 5, number=2, first=7)]
    assert first_frame_indices(stored).tolist() == [0, 7]
    table = episode_table(1, curve(5), stored[1], 7)
    assert table["index"].to_pylist() == [7, 8, 9, 10, 11] and set(table["episode_index"].to_pylist()) == {2}


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(1, 9))
def test_row_groups_are_the_rows_in_their_order(lengths: list[int], rows: int) -> None:
    tables, start = [], 0
    for length in lengths:
        tables.append(pa.table({"x": np.arange(start, start + length)}))
        start += length
    groups = list(split_row_groups(iter(tables), rows))
    assert [x for group in groups for x in group["x"].to_pylist()] == list(range(start))
    assert all(len(group) == rows for group in groups[:-1]) and all(len(group) <= rows for group in groups)


def test_the_file_is_the_one_that_is_written_of_all_at_once(tmp_path: Path) -> None:
    """Though no more than a row group lies in memory: with more than one of them, too."""
    lengths = (7, ROW_GROUP_SIZE // 2, ROW_GROUP_SIZE // 2 + 5, 300, 1)
    tables = [
        episode_table(i, curve(length, i), meta(str(i), length), sum(lengths[:i])) for i, length in enumerate(lengths)
    ]
    write_table(tmp_path / "table.parquet", iter(tables))
    written = tmp_path / "table.parquet"
    assert pq.read_metadata(written).num_row_groups == 2
    for name, column in zip(tables[0].column_names, pq.read_table(written).columns, strict=True):
        np.testing.assert_array_equal(column.to_numpy(), pa.concat_tables(tables)[name].to_numpy())
    few = io.BytesIO()
    pq.write_table(pa.concat_tables(tables[2:]), few)
    write_table(written, iter(tables[2:]))
    assert written.read_bytes() == few.getvalue() and not list(tmp_path.glob("*.partial"))
