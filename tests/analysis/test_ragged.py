"""Flat-array arithmetic against the obvious loop over rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import ragged

ROWS = st.lists(st.lists(st.integers(0, 10**12), max_size=12), max_size=12)


def flat(rows: list[list[int]]) -> tuple[ragged.Ints, ragged.Ints]:
    values = np.array([value for row in rows for value in row], dtype=np.int64)
    return values, ragged.offsets_of(np.array([len(row) for row in rows], dtype=np.int64))


@given(ROWS, st.floats(0, 1))
def test_quantiles_are_numpys_of_each_row(rows: list[list[int]], q: float) -> None:
    values, offsets = flat(rows)
    got = ragged.quantiles(ragged.sort_rows(values, offsets), offsets, q)
    want = [np.quantile(row, q) if row else np.nan for row in rows]
    np.testing.assert_allclose(got, want, rtol=1e-12)


@given(st.lists(st.lists(st.integers(0, 2**62), max_size=5), max_size=5))
def test_rows_are_sorted_whether_or_not_row_and_value_fit_one_key(rows: list[list[int]]) -> None:
    values, offsets = flat(rows)
    assert ragged.sort_rows(values, offsets).tolist() == [value for row in rows for value in sorted(row)]


@given(ROWS)
def test_gaps_never_cross_a_row(rows: list[list[int]]) -> None:
    values, offsets = flat(rows)
    got, got_offsets = ragged.gaps(values, offsets)
    want = [np.diff(row).tolist() for row in rows]
    assert got.tolist() == [gap for row in want for gap in row]
    assert np.diff(got_offsets).tolist() == [len(row) for row in want]


@given(ROWS)
def test_sums_and_ends_are_those_of_each_row(rows: list[list[int]]) -> None:
    values, offsets = flat(rows)
    np.testing.assert_allclose(ragged.sums(values.astype(np.float64), offsets), [sum(row) for row in rows])
    np.testing.assert_array_equal(ragged.first(values, offsets), [row[0] if row else np.nan for row in rows])
    np.testing.assert_array_equal(ragged.last(values, offsets), [row[-1] if row else np.nan for row in rows])


@given(ROWS, st.data())
def test_taking_rows_and_dropping_values_keep_the_offsets_right(
    rows: list[list[int]], data: st.DataObject
) -> None:
    values, offsets = flat(rows)
    keep_rows = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), dtype=bool
    )
    mask, taken = ragged.take(offsets, keep_rows)
    chosen = [row for row, keep in zip(rows, keep_rows, strict=True) if keep]
    assert values[mask].tolist() == [value for row in chosen for value in row]
    assert np.diff(taken).tolist() == [len(row) for row in chosen]
    even = values % 2 == 0
    left = ragged.filter_values(even, offsets)
    assert np.diff(left).tolist() == [sum(value % 2 == 0 for value in row) for row in rows]


def test_no_rows_at_all_are_no_trouble() -> None:
    values, offsets = flat([])
    assert ragged.quantiles(ragged.sort_rows(values, offsets), offsets, 0.5).size == 0
    assert ragged.gaps(values, offsets)[0].size == 0


@pytest.mark.parametrize("rows", [[[], [5]], [[5], []], [[], []]])
def test_empty_rows_at_either_end_are_empty(rows: list[list[int]]) -> None:
    values, offsets = flat(rows)
    assert ragged.gaps(values, offsets)[1].tolist() == [0, 0, 0]
