"""The table of scores."""

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


def make_prediction(length: int, seed: int = 0) -> RewardOutput:
    rng = np.random.default_rng(seed)
    values = rng.random((4, length), np.float32)
    return RewardOutput(
        progress=values[0],
        valid=values[1] > 0.5,
        subtask=rng.integers(0, 5, length),
        success=values[2],
        uncertainty=values[3],
    )


def make_meta(name: str, length: int, number: int | None = None, first: int | None = None) -> EpisodeMeta:
    return EpisodeMeta(name=name, length=length, instruction="go", episode_index=number, dataset_from_index=first)


def test_prediction_is_restored_from_its_table() -> None:
    for scale in (None, 1.5):
        prediction = make_prediction(9)
        restored = prediction_from_table(episode_table(2, prediction, make_meta("a", 9), 40, scale))
        for name, column in vars(prediction).items():
            np.testing.assert_array_equal(getattr(restored, name), column)
            assert getattr(restored, name).dtype == column.dtype


def test_frame_index_counts_missing_episodes() -> None:
    without_index = [make_meta("a", 4), make_meta("b", 3), make_meta("c", 5)]
    assert first_frame_indices(without_index).tolist() == [0, 4, 7]
    with_index = [make_meta("a", 4, number=0, first=0), make_meta("c", 5, number=2, first=7)]
    assert first_frame_indices(with_index).tolist() == [0, 7]
    table = episode_table(1, make_prediction(5), with_index[1], 7)
    assert table["index"].to_pylist() == [7, 8, 9, 10, 11] and set(table["episode_index"].to_pylist()) == {2}


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(1, 9))
def test_row_groups_keep_the_order_of_rows(lengths: list[int], group_size: int) -> None:
    tables, start = [], 0
    for length in lengths:
        tables.append(pa.table({"x": np.arange(start, start + length)}))
        start += length
    groups = list(split_row_groups(iter(tables), group_size))
    assert [x for group in groups for x in group["x"].to_pylist()] == list(range(start))
    assert all(len(group) == group_size for group in groups[:-1]) and all(len(group) <= group_size for group in groups)


def test_file_equals_that_of_a_single_write(tmp_path: Path) -> None:
    """Also with several row groups, of which only one is in memory."""
    lengths = (7, ROW_GROUP_SIZE // 2, ROW_GROUP_SIZE // 2 + 5, 300, 1)
    tables = [
        episode_table(i, make_prediction(length, i), make_meta(str(i), length), sum(lengths[:i]))
        for i, length in enumerate(lengths)
    ]
    write_table(tmp_path / "table.parquet", iter(tables))
    path = tmp_path / "table.parquet"
    assert pq.read_metadata(path).num_row_groups == 2
    for name, column in zip(tables[0].column_names, pq.read_table(path).columns, strict=True):
        np.testing.assert_array_equal(column.to_numpy(), pa.concat_tables(tables)[name].to_numpy())
    expected = io.BytesIO()
    pq.write_table(pa.concat_tables(tables[2:]), expected)
    write_table(path, iter(tables[2:]))
    assert path.read_bytes() == expected.getvalue() and not list(tmp_path.glob("*.partial"))
